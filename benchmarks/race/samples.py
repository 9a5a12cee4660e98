"""Some of the answers that were given under load, kept to be compared later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.race.cells import Cell
    from benchmarks.race.load import Reply

_REPLIES, _QUESTIONS = 6, 3
"""So many replies of a cell are kept, and so many answers of each."""


def write_samples(path: Path, cell: Cell, replies: Sequence[Reply]) -> None:
    """Keep some of a cell's replies, from its beginning to its end."""
    chosen = replies[:: -(-len(replies) // _REPLIES)]
    with path.open("a") as file:
        for reply in chosen:
            state, questions = reply.asked
            answers = json.loads(reply.body)["answers"]
            # The first and the last, and those between at equal distances.
            names = [*questions][:: -(-len(questions) // _QUESTIONS)]
            sample = {
                "workload": cell.workload,
                "mode": cell.mode,
                "count": cell.count,
                "state": state,
                "questions": {name: questions[name] for name in names},
                "answers": {name: answers[name] for name in names},
            }
            file.write(json.dumps(sample) + "\n")
