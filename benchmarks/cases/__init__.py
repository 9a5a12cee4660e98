"""What is measured, one file a case: a function of the number of repeats that gives figures."""

from collections.abc import Callable

from benchmarks.cases import checkpoints, fork, hybrid, resume
from benchmarks.report import Figure

CASES: dict[str, Callable[[int], list[Figure]]] = {
    "fork": fork.run,
    "hybrid": hybrid.run,
    "resume": resume.run,
    "checkpoints": checkpoints.run,
}
"""Case by name, in the order they run."""
