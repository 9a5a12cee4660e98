"""Answers that were given under load, beside those of an engine that is asked nothing else.

`python -m benchmarks.race.alone MODEL SAMPLES` prints one JSON line a cell. It is a process of its
own because the engine takes the GPU's memory, which the next server needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flide_engine import Engine
from flide_engine.formats import to_json
from flide_engine.verify import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_POOL_BYTES = 1 << 30


def total_variation(answer: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Of two answers to one question: the largest difference of the probability of any event."""
    if answer["type"] == "noul":
        return float(abs(answer["noul"] - other["noul"]))
    p, q = answer["probabilities"], other["probabilities"]
    if p.keys() != q.keys():
        raise ValueError(f"the answers have other options: {[*p]} and {[*q]}.")
    return float(sum(abs(p[name] - q[name]) for name in p) / 2)


def _check(engine: Engine, sample: dict[str, Any]) -> list[float]:
    apart = []
    for name, question in sample["questions"].items():
        # Afresh: nothing may come from what was read for the question before.
        engine.forget()
        alone = engine.decide(sample["state"], {name: question}).answers[name]
        apart.append(total_variation(sample["answers"][name], to_json(alone)))
    return apart


def main() -> None:
    """Check samples."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race.alone")
    parser.add_argument("model", type=Path)
    parser.add_argument("samples", type=Path)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    samples: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in args.samples.read_text().splitlines():
        sample = json.loads(line)
        samples[sample["workload"], sample["mode"], sample["count"]].append(sample)
    with Engine.from_pretrained(args.model, device=args.device, pool_bytes=_POOL_BYTES) as engine:
        for (workload, mode, count), own in samples.items():
            apart = [each for sample in own for each in _check(engine, sample)]
            line = {
                "checked": workload, "mode": mode, "count": count, "answers": len(apart),
                "median_apart": statistics.median(apart), "most_apart": max(apart),
                "bound": BOUNDS[engine.model.dtype],
            }  # fmt: skip
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
