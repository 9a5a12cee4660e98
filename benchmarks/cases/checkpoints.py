"""What it costs a pass to leave checkpoints: the `fork` and `hybrid` requests with and without."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import models
from benchmarks.cases import fork, hybrid
from benchmarks.report import Figure
from benchmarks.timing import Contender, measure

if TYPE_CHECKING:
    from flide_engine import Engine, Request


def run(repeats: int) -> list[Figure]:
    """Measure, one model in memory at a time."""
    engine = models.embedded()
    figures = _cost("SmolLM2", engine, fork.plan(engine), repeats)
    del engine
    engine = models.hybrid()
    return figures + _cost("hybrid", engine, hybrid.plan(engine), repeats)


def _cost(model: str, engine: Engine, request: Request, repeats: int) -> list[Figure]:
    name = f"checkpoints, {model}"
    # What returns in no later request is worth no checkpoint.
    bare = replace(request, durable=0)
    contenders = [
        Contender("without", partial(models.answers, engine, bare), engine.pool.clear),
        Contender("with", partial(models.answers, engine, request), engine.pool.clear),
    ]
    measured = measure(name, contenders, repeats)
    # The last pass was one with.
    left = engine.pool.use()
    seconds = measured.seconds
    cost = 100 * (seconds["with"] / seconds["without"] - 1)
    return [
        Figure(name, "left in the pool", left.pages, "pages"),
        Figure(name, "left in the pool", left.states, "states"),
        Figure(name, "a pass without", seconds["without"], "s"),
        Figure(name, "a pass with", seconds["with"], "s"),
        Figure(name, "cost of leaving them", cost, "%", at_most=3),
    ]
