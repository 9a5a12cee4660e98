"""SmolLM2, 250 new tokens and four questions on a long history: resumed, and read afresh."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import models, texts
from benchmarks.cases.forked import agreement
from benchmarks.report import Figure
from benchmarks.timing import Contender, measure

if TYPE_CHECKING:
    from benchmarks.timing import Answers
    from flide_engine import Engine, Outcome

NEW_TOKENS = 250
QUESTIONS = 4
TARGETS = {4000: 0.2, 7000: 0.15}
"""Tokens of history: what a resumed pass may take of a fresh one."""


def run(repeats: int) -> list[Figure]:
    """Measure."""
    engine = models.embedded()
    figures = []
    for tokens, target in TARGETS.items():
        figures += _on_history(engine, tokens, target, repeats)
    return figures


def _on_history(engine: Engine, tokens: int, target: float, repeats: int) -> list[Figure]:
    history = texts.log(engine.tokenizer, tokens)
    grown = history + texts.log(engine.tokenizer, NEW_TOKENS, seed=1)
    resumed = engine.plan(grown, texts.questions(QUESTIONS))
    # A fresh pass leaves its checkpoint where the history ends; the resumed one goes on from there.
    # Both do the whole work of a step, checkpoint included, and neither needs a pass between.
    before = engine.plan(grown, texts.questions(QUESTIONS), durable=len(history)).durable
    fresh = replace(resumed, durable=before)
    outcomes: list[Outcome] = []

    def resume() -> Answers:
        outcomes[:] = engine.run([resumed])
        return outcomes[0].probabilities

    contenders = [
        Contender("fresh", partial(models.answers, engine, fresh), engine.pool.clear),
        Contender("resumed", resume),
    ]
    name = f"resume on {tokens:,}"
    measured = measure(name, contenders, repeats)
    reuse, seconds = outcomes[0].reuse, measured.seconds
    return [
        Figure(name, "tokens reused", reuse.reused_tokens, "tokens"),
        Figure(name, "tokens computed", reuse.new_tokens, "tokens"),
        Figure(name, "fresh", seconds["fresh"], "s"),
        Figure(name, "resumed", seconds["resumed"], "s"),
        Figure(name, "resumed / fresh", seconds["resumed"] / seconds["fresh"], "x", at_most=target),
        agreement(name, measured),
    ]
