"""A random hybrid of the Qwen3.5 0.8B shape, 512 tokens of state and eight questions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks import baselines, models, texts
from benchmarks.cases.forked import against_alone
from benchmarks.timing import Contender, measure

if TYPE_CHECKING:
    from benchmarks.report import Figure
    from flide_engine import Engine, Request

STATE_TOKENS = 512
QUESTIONS = 8


def plan(engine: Engine) -> Request:
    """The request that this case measures."""
    return texts.request(engine, STATE_TOKENS, QUESTIONS)


def run(repeats: int) -> list[Figure]:
    """Measure."""
    engine = models.hybrid()
    transformer = baselines.load(models.hybrid_directory())
    request = plan(engine)
    contenders = [
        Contender("forked", partial(models.answers, engine, request), engine.pool.clear),
        Contender("alone", partial(baselines.alone, transformer, request)),
    ]
    measured = measure("hybrid", contenders, repeats)
    return against_alone("hybrid", request, measured, at_least=0.9)
