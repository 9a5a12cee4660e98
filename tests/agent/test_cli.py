"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flide_agent import SystemOneResponse, __version__
from flide_agent.cli import main
from flide_engine.core import Reuse
from flide_engine.errors import ModelLoadError
from flide_engine.formats.answers import ChoiceAnswer, NoulAnswer, ScoreAnswer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUESTIONS: dict[str, Any] = {
    "refund": {"type": "noul", "instructions": "Does the customer want money back?"},
    "team": {"type": "choice", "criteria": {"billing [b]": None, "환불": "refunds"}},
    "anger": {"type": "score", "criteria": ["calm", "angry"]},
}

ANSWERS = {
    "refund": NoulAnswer(0.875),
    "team": ChoiceAnswer("환불", {"billing [b]": 0.25, "환불": 0.75}, 0.5),
    "anger": ScoreAnswer(0.75, ("calm", "angry"), (0.25, 0.75), 0.5),
}


class FakeEngine:
    """Answers three questions without a model, and remembers what it was asked."""

    model_name = "fake"

    def __init__(self) -> None:
        self.loaded: dict[str, Any] = {}
        self.state: Any = None
        self.fault: BaseException | None = None

    def load(self, model: str, *, progress: Callable[[str, int, int], None], **options: Any) -> Any:
        self.loaded = {"model": model, **options}
        print("a library's greeting")
        progress("weights", 1, 2)
        progress("weights", 2, 2)
        return self

    def decide(self, state: Any, questions: dict[str, Any]) -> Any:
        if self.fault:
            raise self.fault
        self.state = state
        return SimpleNamespace(
            answers={name: ANSWERS[name] for name in questions},
            usage=SimpleNamespace(input_tokens=188, output_tokens=0),
            reuse=Reuse(new_tokens=60, reused_tokens=128, source="pool"),
            timing=SimpleNamespace(plan_ms=1.0, run_ms=41.0, total_ms=42.0),
        )


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(QUESTIONS), encoding="utf-8")
    return path


@pytest.fixture
def ask(
    engine: FakeEngine, questions: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    def run(*more: str, state: str = "I was charged twice.", file: Path = questions) -> Done:
        arguments = ["ask", "--model", "m", "--state", state, "--questions", str(file), *more]
        status = main(arguments, load_engine=engine.load)
        return Done(status, *capsys.readouterr())

    return run


class TestAsk:
    def test_json_is_a_system_one_response(self, ask: Callable[..., Done]) -> None:
        """With --json stdout holds the response and nothing else."""
        done = ask("--json")
        answered = SystemOneResponse.model_validate_json(done.out)

        assert done.status == 0
        assert answered.model_dump() == {
            "model": "fake",
            "answers": {
                "refund": {"type": "noul", "noul": 0.875},
                "team": {
                    "type": "choice",
                    "choice": "환불",
                    "probabilities": {"billing [b]": 0.25, "환불": 0.75},
                    "confidence": 0.5,
                },
                "anger": {
                    "type": "score",
                    "score": 0.75,
                    "legend": {"0": "calm", "1": "angry"},
                    "probabilities": {"0": 0.25, "1": 0.75},
                    "confidence": 0.5,
                },
            },
            "usage": {"input_tokens": 188, "output_tokens": 0},
            "x_reuse": {
                "new_tokens": 60,
                "reused_tokens": 128,
                "source": "pool",
                "choice": "",
            },
            "x_timing": {"plan_ms": 1.0, "run_ms": 41.0, "total_ms": 42.0},
        }
        assert "a library's greeting" in done.err

    def test_table_shows_answers_bars_and_cost(self, ask: Callable[..., Done]) -> None:
        """People see every answer, every probability as a bar, and what it cost."""
        done = ask()

        assert done.status == 0
        for shown in ("refund", "yes", "0.875", "환불", "billing [b]", "0.75 of 1", "0 calm", "█"):
            assert shown in done.out
        assert done.out.endswith("fake: 60 tokens computed, 128 reused (pool), 42 ms\n")

    def test_options_reach_the_engine(self, ask: Callable[..., Done], engine: FakeEngine) -> None:
        """Model, device and precision are handed on."""
        ask("--device", "cuda:1", "--dtype", "float64")

        assert engine.loaded == {"model": "m", "device": "cuda:1", "dtype": "float64"}


class TestFaults:
    """Every fault of the user is one sentence on stderr and exit status 2."""

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"", "the document is empty; JSON was expected."),
            (
                b'{"q":\n  {"type": noul}}',
                "the document is not valid JSON: Expecting value at line 2, column 12.",
            ),
            (b"\xff", "the document is not UTF-8 text: byte 0xff at position 0; save it as UTF-8."),
            (b"[]", "the document: an array was given, but it must be a map."),
            (b"{}", "questions: the map is empty, but at least one question must be asked."),
            (
                b'{"q": {"type": "choice", "criteria": {}}}',
                "questions.q.choice.criteria: 0 options were given, but a choice has 1 to 255.",
            ),
        ],
    )
    def test_questions(
        self, ask: Callable[..., Done], tmp_path: Path, content: bytes, sentence: str
    ) -> None:
        """A fault in the questions names the file and the place in it."""
        path = tmp_path / "q.json"
        path.write_bytes(content)

        assert ask(file=path) == Done(2, "", f"flide-agent: {path}: {sentence}\n")

    def test_missing_questions(self, ask: Callable[..., Done], tmp_path: Path) -> None:
        """A missing file is named."""
        path = tmp_path / "q.json"
        sentence = f"{path}: it cannot be read (No such file or directory)."

        assert ask(file=path) == Done(2, "", f"flide-agent: {sentence}\n")

    def test_state_of_a_wrong_kind(self, ask: Callable[..., Done], tmp_path: Path) -> None:
        """A JSON file may hold null, a state may not."""
        path = tmp_path / "state.json"
        path.write_text("null", encoding="utf-8")
        sentence = "state: null was given, but it must be text, a map or an array."

        assert ask(state=str(path)) == Done(2, "", f"flide-agent: {sentence}\n")

    def test_engine(self, ask: Callable[..., Done], engine: FakeEngine) -> None:
        """What the engine refuses is said in its words."""
        engine.fault = ModelLoadError("/tmp: there is no config.json")
        done = ask()

        assert (done.status, done.out) == (2, "")
        assert done.err.endswith("flide-agent: /tmp: there is no config.json\n")

    def test_input_is_read_before_the_model(
        self, ask: Callable[..., Done], engine: FakeEngine
    ) -> None:
        """A typing error does not cost the time that a model takes to load."""
        ask(state="history.json")

        assert engine.loaded == {}

    def test_missing_engine(
        self, questions: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without the engine's packages the command says how to install them."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "flide_engine"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "torch", None)
        status = main(["ask", "--model", "m", "--state", "Hi!", "--questions", str(questions)])

        assert status == 2
        assert capsys.readouterr().err == (
            "flide-agent: a model needs the engine, and torch is not installed: "
            "run pip install 'flide-agent[engine]'.\n"
        )

    def test_interrupt_is_quiet(self, ask: Callable[..., Done], engine: FakeEngine) -> None:
        """Ctrl-C ends the command without a traceback."""
        engine.fault = KeyboardInterrupt()
        done = ask()

        assert done.status == 130
        assert "Traceback" not in done.err

    @pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"]])
    def test_broken_pipe_is_quiet(self, arguments: list[str]) -> None:
        """A reader that has gone away is no reason to complain."""
        # Without transformers there is nothing slow to import, and as much to print.
        code = (
            "import sys; sys.modules['transformers'] = None;"
            "from flide_agent.cli import main; sys.exit(main())"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout
        process.stdout.close()
        _, err = process.communicate(timeout=60)

        assert (process.returncode, err) == (1, b"")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out == f"flide-agent {__version__}\n"


@pytest.mark.parametrize("command", [[], ["ask"], ["doctor"]])
def test_help_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every help text shows a command that can be copied."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])

    assert "example:" in capsys.readouterr().out
