"""What sessions cost outside the model at 100,000 tokens: `python -m benchmarks.sessions`.

A client in this process asks a small random hybrid with Qwen3.5's vocabulary whose passes are left
out: everything else of a step is done, from messages to a decision's answers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks import report, texts
from flide_agent import Client
from flide_engine import Engine
from tests.support.models import random_model, save
from tests.support.vocabularies import qwen_tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_agent import Session
    from flide_engine.round import Round
    from flide_engine.storage import Storage

HISTORY = 100_000
TURN = 300
QUESTIONS = texts.questions(4)
APPEND_MS = 5.0
SYNC_MS = 25.0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a bound was not kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="default: %(default)s")
    repeats = parser.parse_args(argv).repeats
    tokenizer = qwen_tokenizer()
    turns = [_turn(tokenizer, seed) for seed in range(HISTORY // TURN + 3 * repeats + 4)]
    with (
        tempfile.TemporaryDirectory() as folder,
        _engine(Path(folder), tokenizer) as engine,
        Client.local(engine, eager=False) as client,
    ):
        figures = _figures(client.session(), turns, repeats)
    report.show(figures, repeats)
    return int(any(figure.met is False for figure in figures))


def _figures(session: Session, turns: list[Any], repeats: int) -> list[report.Figure]:
    first = HISTORY // TURN
    history, new = turns[:first], iter(turns[first:])
    session.ask(QUESTIONS, messages=history)
    case = f"a history of {session.tokens:,} tokens in {len(history)} messages"

    def append() -> None:
        history.append(next(new))
        session.append(history[-1])

    def append_and_ask() -> None:
        append()
        session.ask(QUESTIONS)

    def sync_and_ask() -> None:
        history.append(next(new))
        session.ask(QUESTIONS, messages=history)

    return [
        report.Figure(case, "append 300 tokens", _least(append, repeats), "ms", at_most=APPEND_MS),
        report.Figure(
            case, "append and ask", _least(append_and_ask, repeats), "ms", at_most=APPEND_MS
        ),
        report.Figure(
            case, "whole history and ask", _least(sync_and_ask, repeats), "ms", at_most=SYNC_MS
        ),
    ]


def _least(step: Callable[[], None], repeats: int) -> float:
    """Milliseconds of the fastest of some steps."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return 1e3 * min(taken)


def _turn(tokenizer: Any, seed: int) -> dict[str, Any]:
    """A message of about `TURN` tokens."""
    order = {"order": seed, "items": ["kettle"] * 4, "open": True}
    content = texts.log(tokenizer, TURN - 60, seed) + json.dumps([order] * 2)
    return {"role": "assistant" if seed % 2 else "user", "content": content}


def _engine(folder: Path, tokenizer: Any) -> Engine:
    model = random_model("qwen3_5", "tied")
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.max_position_embeddings = 4 * HISTORY
    tokenizer.save_pretrained(folder)
    engine = Engine.from_pretrained(save(model, folder))
    engine._serving.scheduler._runner._executor.model = _no_pass  # type: ignore[attr-defined]
    return engine


def _no_pass(rnd: Round, storage: Storage) -> torch.Tensor:
    return torch.zeros(sum(rnd.labels.counts))


if __name__ == "__main__":
    sys.exit(main())
