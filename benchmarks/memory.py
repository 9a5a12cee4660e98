"""Answers the `fork` case once in this process alone, and prints as JSON what that took."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks import models
from benchmarks.cases import fork
from flide_engine import smollm2


def main() -> None:
    """Answer and print."""
    engine = models.embedded()
    engine.run([fork.plan(engine)])
    # Read here and not by who started this: the kernel keeps it for the living only.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak, "Linux says what a process held at most"
    # The file holds float32, as memory does.
    weights = (smollm2.prepare() / "model.safetensors").stat().st_size
    print(json.dumps({"peak_bytes": int(peak[1]) * 1024, "weight_bytes": weights}))


if __name__ == "__main__":
    main()
