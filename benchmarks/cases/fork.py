"""SmolLM2, one state of 1,000 tokens and sixteen questions: forked, alone, and on a cache."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import baselines, models, texts
from benchmarks.cases.forked import against_alone
from benchmarks.report import Figure
from benchmarks.timing import Contender, console, measure
from flide_engine import smollm2

if TYPE_CHECKING:
    from flide_engine import Engine, Request

STATE_TOKENS = 1000
QUESTIONS = 16

_GIB = 2**30


def plan(engine: Engine) -> Request:
    """The request that this case measures."""
    return texts.request(engine, STATE_TOKENS, QUESTIONS)


def run(repeats: int) -> list[Figure]:
    """Measure."""
    memory = _memory()
    engine = models.embedded()
    transformer = baselines.load(smollm2.prepare())
    request = plan(engine)
    contenders = [
        Contender("forked", partial(models.answers, engine, request), engine.pool.clear),
        Contender("alone", partial(baselines.alone, transformer, request)),
        Contender("cached", partial(baselines.cached, transformer, request)),
    ]
    measured = measure("fork", contenders, repeats)
    seconds = measured.seconds
    return [
        *against_alone("fork", request, measured, at_least=0.85),
        Figure("fork", "transformers, cached state", seconds["cached"], "s"),
        Figure("fork", "speed-up over the cache", seconds["cached"] / seconds["forked"], "x", 1.25),
        *memory,
    ]


def _memory() -> list[Figure]:
    """What a process holds at most that does nothing but this."""
    if not sys.platform.startswith("linux"):
        return []
    console.print("fork: peak memory, in a process of its own")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.memory"]
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    over = (found["peak_bytes"] - found["weight_bytes"]) / _GIB
    return [
        Figure("fork", "peak memory", found["peak_bytes"] / _GIB, "GiB"),
        Figure("fork", "peak memory over weights", over, "GiB", at_most=1.5),
    ]
