"""What a step costs outside the model, by length of history: `python -m benchmarks.history`.

Text grows by about 300 tokens and four questions are asked about it. No model is loaded: the pool
hands out pages and states that nobody fills.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from benchmarks import report, texts
from benchmarks.timing import console
from flide_engine import smollm2
from flide_engine.core import GRID
from flide_engine.formats import Formatter, parse_question
from flide_engine.hub import load_tokenizer
from flide_engine.pack import Trunk, pack
from flide_engine.pool import Pool
from flide_engine.storage import Layout
from tests.support.vocabularies import qwen_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerFast

    from flide_engine.core import Request
    from flide_engine.formats import GrowingText

LENGTHS = (10_000, 50_000, 100_000)
TURN = 300
QUESTIONS = 4
BOUND_MS = 5.0
PARTS = ("grow", "plan", "acquire", "pack", "commit")

# Qwen3.5 0.8B, and the same without its recurrent layers.
_ATTENTION = {"attention_layers": 6, "kv_heads": 2, "head_dim": 256, "heads": 8}
LAYOUTS = {
    "hybrid": Layout(
        **_ATTENTION,
        recurrent_layers=18,
        value_heads=16,
        key_dim=128,
        value_dim=128,
        conv_channels=6144,
        conv_width=4,
    ),
    "attention": Layout(**_ATTENTION),
}
_PAGES = 2 * LENGTHS[-1] // GRID
_STATES = 16


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a bound was not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="default: %(default)s")
    repeats = parser.parse_args(argv).repeats
    tokenizer = _tokenizer()
    formatter = Formatter(tokenizer)
    turns = [_turn(tokenizer, seed) for seed in range(LENGTHS[-1] // TURN + repeats)]
    figures: list[report.Figure] = []
    for length in LENGTHS:
        held = length // TURN
        for name, layout in LAYOUTS.items():
            history = formatter.begin().grow("".join(turns[:held]))
            case = f"{name}, a history of {history.count:,} tokens"
            steps = turns[held : held + repeats]
            figures += _figures(case, _measure(formatter, layout, history, steps))
    report.show(figures, repeats)
    return int(any(figure.met is False for figure in figures))


def _measure(
    formatter: Formatter, layout: Layout, history: GrowingText, steps: Sequence[str]
) -> list[list[float]]:
    """Milliseconds of every part of every step."""
    questions = {
        name: parse_question(question) for name, question in texts.questions(QUESTIONS).items()
    }
    pool = Pool(
        num_pages=_PAGES,
        num_states=_STATES,
        page_bytes=layout.page_bytes(torch.float32),
        state_bytes=layout.state_bytes(torch.float32),
        budget_bytes=2**40,
        cost=lambda start, end: end - start + (end**2 - start**2) / 50_000,
    )
    _pass(pool, history.request(), layout)
    taken = []
    for text in steps:
        at = [time.perf_counter()]
        history = history.grow(text)
        at.append(time.perf_counter())
        request = formatter.plan(history, questions)
        at += [time.perf_counter(), *_pass(pool, request, layout)]
        taken.append([1e3 * (end - start) for start, end in pairwise(at)])
    return taken


def _pass(pool: Pool, request: Request | None, layout: Layout) -> list[float]:
    """When a request was leased, packed and committed."""
    assert request is not None
    lease = pool.acquire(request)
    at = [time.perf_counter()]
    assert lease is not None
    trunk = Trunk(
        request.trunk, request.branches, lease.pages, lease.start, lease.state_in, lease.saves
    )
    pack([trunk], layout, _STATES)
    at.append(time.perf_counter())
    pool.commit(lease)
    return [*at, time.perf_counter()]


def _figures(case: str, taken: list[list[float]]) -> list[report.Figure]:
    parts = [
        report.Figure(case, name, min(times), "ms")
        for name, times in zip(PARTS, zip(*taken, strict=True), strict=True)
    ]
    total = min(map(sum, taken))
    return [*parts, report.Figure(case, "all of a step", total, "ms", at_most=BOUND_MS)]


def _turn(tokenizer: PreTrainedTokenizerFast, seed: int) -> str:
    """About `TURN` tokens: what an agent said, and what a tool answered."""
    order = {"order": seed, "total": seed * 37 % 400 / 8, "items": ["kettle"] * 4, "open": True}
    result = json.dumps({"tool": "lookup_order", "result": [order] * 3})
    return texts.log(tokenizer, TURN - 140, seed) + f"\n\nTool: {result}\n"


def _tokenizer() -> PreTrainedTokenizerFast:
    """Qwen3.5's vocabulary where it is installed, else SmolLM2's."""
    try:
        return qwen_tokenizer()
    except ImportError:
        console.print("qwen-tokenizer is not installed: measuring with SmolLM2's vocabulary")
        return load_tokenizer(smollm2.prepare())


if __name__ == "__main__":
    sys.exit(main())
