"""Random checkpoints, made once a session."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.models import LLAMA, QWEN, load, random_model, save
from tests.support.pools import assert_empty, make
from tests.support.serving import Stage
from tests.support.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from transformers import PreTrainedModel

    from flide_engine.models import Decoder

CASES = [("llama", name) for name in LLAMA] + [("qwen3_5", name) for name in QWEN]


@dataclass
class Checkpoint:
    """One random checkpoint and all that reads it."""

    directory: Path
    transformers: PreTrainedModel

    @cached_property
    def truth(self) -> Truth:
        """Transformers in float64 all through."""
        return Truth(self.directory)

    @cached_property
    def float64(self) -> Decoder:
        """Ours in float64."""
        return load(self.directory, torch.float64)

    @cached_property
    def float32(self) -> Decoder:
        """Ours in float32."""
        return load(self.directory, torch.float32)


@pytest.fixture(scope="session", params=CASES, ids=["-".join(case) for case in CASES])
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    """A checkpoint of every family and variant."""
    family, variant = request.param
    model = random_model(family, variant)
    return Checkpoint(save(model, tmp_path_factory.mktemp(f"{family}-{variant}")), model)


@pytest.fixture(params=[True, False], ids=["hybrid", "attention"])
def hybrid(request: pytest.FixtureRequest) -> bool:
    """Both kinds of model."""
    return bool(request.param)


@pytest.fixture
def stage(hybrid: bool) -> Iterator[Stage]:
    """Rounds of 1,000 rows on a pool short of nothing; afterwards nothing is in use."""
    made = Stage(make(hybrid))
    yield made
    made.scheduler.close(drain=True)
    assert made.pool.use().pins == 0
    made.pool.clear()
    assert_empty(made.pool)
