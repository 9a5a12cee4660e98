"""`flide-agent verify`, on a real small model: its table, its JSON and its exit status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from flide_agent import parse_request
from flide_agent.cli import main
from flide_agent.cli.samples import SAMPLES
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUEST: dict[str, Any] = {
    "state": "I was charged twice, and\u2028nobody answers. " * 4,
    "questions": {
        "refund": {"type": "noul", "instructions": "Money back?"},
        "team": {"type": "choice", "criteria": {"billing": None, "환불": "refunds"}},
    },
}


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("model"), "qwen3_5", "tied")


@pytest.fixture
def verify(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(content: str | None = None, *more: str) -> Done:
        path = tmp_path / "requests.jsonl"
        if content is not None:
            path.write_text(content, encoding="utf-8")
            more = ("--requests", str(path), *more)
        status = main(["verify", "--model", str(model), *more])
        return Done(status, *capsys.readouterr())

    return run


def lines(*documents: Any) -> str:
    """JSON Lines, with a blank one and without escapes."""
    return "\n\n".join(json.dumps(document, ensure_ascii=False) for document in documents) + "\n"


def test_table_says_what_was_compared_and_how_far_apart_it_is(verify: Callable[..., Done]) -> None:
    """People see every form, what the words mean, and the verdict."""
    done = verify(lines(REQUEST))

    assert done.status == 0
    for shown in ("forked", "batched", "shared", "resumed", "transformers", "largest", "changed"):
        assert shown in done.out
    assert "1 requests, 2 questions; resumed at tokens 64, 128" in " ".join(done.out.split())
    assert done.out.endswith("ok: the bound on a difference is 1e-04, and every form keeps it\n")


def test_json_holds_the_whole_report(verify: Callable[..., Done]) -> None:
    """With --json stdout holds the report and nothing else; a request may name any model."""
    done = verify(
        lines(REQUEST, {**REQUEST, "model": "jev-latest"}), "--dtype", "float64", "--json"
    )
    report = json.loads(done.out)

    assert done.status == 0
    assert (report["ok"], report["dtype"], report["device"]) == (True, "float64", "cpu")
    assert (report["requests"], report["questions"], report["faults"]) == (2, 4, [])
    assert [form["name"] for form in report["forms"]] == [
        *("forked", "batched", "shared", "resumed", "forked")
    ]
    for form in report["forms"][:4]:
        assert form["against"] == "alone"
        assert form["bound"] == 1e-9
        assert form["largest_difference"] <= form["bound"]
        assert form["ok"]
    assert report["forms"][4]["bound"] is None


def test_float64_says_why_transformers_only_informs(verify: Callable[..., Done]) -> None:
    """The row that has no bound is explained."""
    assert "for information only" in verify(lines(REQUEST), "--dtype", "float64").out


def test_the_built_in_requests_verify_a_model(verify: Callable[..., Done]) -> None:
    """Without a file there is enough to resume at several grid points."""
    report = json.loads(verify(None, "--json").out)

    assert report["ok"]
    assert report["requests"] == len(SAMPLES)
    assert len(report["places"]) >= 4
    kinds = {
        question.type
        for sample in SAMPLES
        for question in parse_request({"model": "m", **sample}).questions.values()
    }
    assert kinds == {"noul", "choice", "score"}


def test_over_the_bound_is_exit_status_1(verify: Callable[..., Done]) -> None:
    """A bound that rounding cannot keep is named with the forms that break it."""
    done = verify(lines(REQUEST), "--bound", "0")

    assert done.status == 1
    assert "failed: the bound on a difference is 0e+00, and over it: " in done.out
    assert "forked against transformers" in " ".join(done.out.split())


def test_a_planted_fault_is_exit_status_1(
    verify: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state that is another one when it is resumed does not pass."""
    from flide_engine.engine import Engine

    run = Engine.run

    def faded(engine: Engine, requests: Any) -> Any:
        if engine.pool.use().blocks:
            for state in engine.storage.recurrent:
                state[:8] *= 1.5
        return run(engine, requests)

    monkeypatch.setattr(Engine, "run", faded)
    done = verify(lines(REQUEST), "--json")
    report = json.loads(done.out)

    assert done.status == 1
    assert [form["name"] for form in report["forms"] if not form["ok"]] == ["resumed"]


def test_an_array_is_as_good_as_lines(verify: Callable[..., Done]) -> None:
    """A JSON array of requests is read too."""
    done = verify(json.dumps([REQUEST, REQUEST], indent=1), "--json")

    assert json.loads(done.out)["requests"] == 2


class TestFaults:
    """Every fault of the user is one sentence on stderr and exit status 2."""

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            ("", " holds no request; write one a line, or a JSON array of them."),
            ("[]", " holds no request; write one a line, or a JSON array of them."),
            (
                lines(REQUEST) + "{",
                ", line 2 is not valid JSON: Expecting property name enclosed in double quotes at "
                "line 1, column 2.",
            ),
            (lines(REQUEST, 7), ", line 3: the number 7 was given, but a request must be a map."),
            (
                lines({"state": "Hi."}),
                ", line 1: questions: it is missing; give a map from id to question.",
            ),
            (
                json.dumps([REQUEST, {"state": 1, "questions": {}}]),
                "[1]: state: the number 1 was given, but it must be text, a map or an array.",
            ),
        ],
    )
    def test_requests(
        self, verify: Callable[..., Done], tmp_path: Path, content: str, sentence: str
    ) -> None:
        """A fault in the requests names the file and the place in it."""
        path = tmp_path / "requests.jsonl"

        assert verify(content) == Done(2, "", f"flide-agent: {path}{sentence}\n")

    def test_missing_file(self, verify: Callable[..., Done]) -> None:
        """A missing file is named."""
        sentence = "flide-agent: nothing.jsonl: it cannot be read (No such file or directory).\n"

        assert verify(None, "--requests", "nothing.jsonl") == Done(2, "", sentence)

    def test_missing_model(self, verify: Callable[..., Done]) -> None:
        """The engine's sentence about the model is the command's."""
        done = verify(lines(REQUEST), "--model", "./nowhere")

        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("flide-agent: './nowhere': there is no such directory")

    @pytest.mark.parametrize("bound", ["-1", "nan", "inf", "small"])
    def test_bound(
        self, verify: Callable[..., Done], capsys: pytest.CaptureFixture[str], bound: str
    ) -> None:
        """A bound is a number from 0."""
        with pytest.raises(SystemExit) as caught:
            verify(None, f"--bound={bound}")

        assert caught.value.code == 2
        assert f"'{bound}' is not a number from 0, such as 1e-4" in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The help text shows a command that can be copied."""
    with pytest.raises(SystemExit):
        main(["verify", "--help"])

    assert "example:\n  flide-agent verify" in capsys.readouterr().out
