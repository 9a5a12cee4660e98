"""The names of blocks."""

from __future__ import annotations

import numpy as np
import pytest

from flide_engine.blocks import block_digests
from flide_engine.core import GRID
from tests.support.pools import joined, words


def test_a_digest_depends_on_tenant_and_all_tokens_before() -> None:
    """Equal blocks at the same place in different histories have different names."""
    tokens = words(3 * GRID)
    digests = block_digests("a", tokens, 3)
    assert digests == block_digests("a", joined(tokens, words(70, 3)), 3)
    assert not set(digests) & set(block_digests("b", tokens, 3))
    tokens[0] += 1
    assert not set(digests) & set(block_digests("a", tokens, 3))
    assert len({*block_digests("a", np.zeros(5 * GRID, dtype=np.int64), 5)}) == 5


@pytest.mark.parametrize("known", range(5))
def test_digests_go_on_from_known_ones(known: int) -> None:
    """The tokens of blocks whose digests are known are not looked at."""
    tokens = words(4 * GRID + 9)
    digests = block_digests("a", tokens, 4)
    tokens[: known * GRID] = 0
    assert block_digests("a", tokens, 4, digests[:known]) == digests
    assert block_digests("a", tokens, 2, digests[:known]) == digests[:2]
