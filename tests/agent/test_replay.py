"""`flide-agent replay`: recorded agents, step by step."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import InvalidInput
from flide_agent.cli import main
from flide_agent.cli.traces import QUESTIONS, read_traces
from flide_engine.engine import Engine
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from pathlib import Path

ASKED = {"done": {"type": "noul", "instructions": "Is it done?"}}
STEPS = ["You mend things. " * 20, *(f"\nACTION: look at {n}, {n * 'so '}" for n in range(30))]
MESSAGES = [
    {"role": "system", "content": "You mend things."},
    {"role": "user", "content": "Mend it."},
    {"role": "assistant", "content": "", "tool_calls": []},
    {"role": "tool", "content": "broken"},
    {"role": "tool", "content": "glue"},
    {"role": "assistant", "content": "Mended."},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random hybrid."""
    return chat_model(tmp_path_factory.mktemp("hybrid"), "qwen3_5", "tied")


def trace(folder: Path, *lines: Any) -> str:
    """A file of traces."""
    path = folder / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return str(path)


def replay(*arguments: str) -> int:
    """Run the command."""
    return main(["replay", *arguments], load_engine=Engine.from_pretrained)


def test_a_step_costs_what_is_new(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the second step on nearly all of the history is reused, however long it is."""
    path = trace(tmp_path, {"steps": STEPS, "questions": ASKED})
    status = replay(path, "--model", str(model), "--json")
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert status == 0
    assert [step["step"] for step in steps] == list(range(1, len(STEPS) + 1))
    assert set(steps[0]) == {
        "agent", "step", "history_tokens", "new_tokens", "reused_tokens", "tier", "ms"
    }  # fmt: skip
    assert (steps[0]["reused_tokens"], steps[0]["tier"]) == (0, "none")
    for before, step in itertools.pairwise(steps):
        grown = step["history_tokens"] - before["history_tokens"]
        assert step["reused_tokens"] >= before["history_tokens"] - 128
        assert step["new_tokens"] <= grown + 128 + 100
        assert step["tier"] == "pool"


def test_people_see_a_table_and_a_chart(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last steps, latency against history, and the sum."""
    path = trace(tmp_path, {"steps": STEPS[:3], "questions": ASKED}, MESSAGES)
    assert replay(path, "--model", str(model)) == 0
    out = capsys.readouterr().out

    assert "history, tokens" in out
    assert "6 steps:" in out


def test_long_histories_can_be_left(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --max-tokens the next agent follows once a history is longer."""
    path = trace(tmp_path, *[{"steps": STEPS, "questions": ASKED}] * 2)
    replay(path, "--model", str(model), "--json", "--max-tokens", "400")
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert {step["agent"] for step in steps} == {1, 2}
    assert len(steps) < 2 * len(STEPS)
    assert sum(step["history_tokens"] > 400 for step in steps) == 2


def test_messages_by_step() -> None:
    """A step begins with what the agent did, and ends where it acts again."""
    (read,) = read_traces("t", json.dumps(MESSAGES).encode())

    assert [len(step) for step in read.steps] == [2, 3, 1]
    assert set(read.questions) == set(QUESTIONS)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"{", "line 1 is not valid JSON"),
        (b"7", '"steps" or "messages"'),
        (b'{"steps": []}', "at least one"),
        (b'{"steps": "a"}', "at least one"),
        (b'{"steps": ["a"]}\n{"steps": ["a"], "questions": {"q": {"type": "x"}}}', "line 2"),
    ],
)
def test_faulty_traces(lines: bytes, words: str) -> None:
    """The line and what is wrong with it."""
    with pytest.raises(InvalidInput, match=words):
        list(read_traces("trace.jsonl", lines))


def test_faulty_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and status 2, before a model is loaded."""
    path = trace(tmp_path, MESSAGES)
    for arguments in (["nowhere.jsonl"], [path, "--max-tokens", "0"]):
        assert replay(*arguments, "--model", "none") == 2
        assert capsys.readouterr().err.count("\n") == 1
