"""Hand-made rounds on memory full of NaN, so that whatever is read must have been written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from flide_engine.core import GRID, Branch, Tokens
from flide_engine.pack import Trunk, pack
from flide_engine.storage import Storage
from tests.support.models import VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.models import Decoder

LABELS = np.arange(VOCABULARY)
NUM_PAGES = 96
NUM_STATES = 12


def poisoned_storage(decoder: Decoder) -> Storage:
    """Storage in which every number is NaN."""
    storage = Storage(
        decoder.layout,
        num_pages=NUM_PAGES,
        num_states=NUM_STATES,
        dtype=decoder.dtype,
        device=torch.device("cpu"),
    )
    for tensor in (*storage.keys, *storage.values, *storage.recurrent, *storage.windows):
        tensor.fill_(float("nan"))
    return storage


class Pages:
    """Hands out pages in a scattered order, as a pool that has been used for a while does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._free = rng.permutation(NUM_PAGES).tolist()

    def take(self, tokens: int) -> list[int]:
        """Enough pages for so many tokens."""
        return [self._free.pop() for _ in range(-(-tokens // GRID))]


def tokens(rng: np.random.Generator, length: int) -> Tokens:
    """Random token ids."""
    return rng.integers(0, VOCABULARY, length)


def trunk(rng: np.random.Generator, pages: Pages, length: int, branches: Sequence[int]) -> Trunk:
    """A fresh random trunk with branches of these lengths."""
    made = [Branch(tokens(rng, count), LABELS) for count in branches]
    return Trunk(tokens(rng, length), made, pages.take(length))


def run(decoder: Decoder, storage: Storage, trunks: Sequence[Trunk]) -> torch.Tensor:
    """`[R, VOCABULARY]` log-probabilities of all branches."""
    rnd = pack(trunks, storage.layout, storage.num_states)
    return decoder(rnd, storage).view(-1, VOCABULARY)


def prompts(trunks: Sequence[Trunk]) -> list[Tokens]:
    """What each branch would be if asked alone."""
    return [
        np.concatenate([t.token_ids[: t.fork_of(branch)], branch.token_ids])
        for t in trunks
        for branch in t.branches
    ]


def alone(decoder: Decoder, prompt: Tokens, cut: int) -> torch.Tensor:
    """`[VOCABULARY]` log-probabilities of one prompt in a round of its own, cut anywhere."""
    pages = list(range(-(-cut // GRID)))
    single = Trunk(prompt[:cut], [Branch(prompt[cut:], LABELS)], pages)
    return run(decoder, poisoned_storage(decoder), [single])[0]
