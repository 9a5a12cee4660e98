"""What the command line takes for a state, and where it reads it from."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from flide_agent import InvalidInput
from flide_agent.cli.inputs import read_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("argument", ["Yes.", "Is 1/2 more? e.g. now", "質問", "two\nlines"])
def test_state_may_be_text(argument: str) -> None:
    """What is no file is the state itself."""
    assert read_state(argument) == argument


@pytest.mark.parametrize(
    ("name", "content", "state"),
    [
        ("state.txt", b'{"a": 1}\r\n', '{"a": 1}\r\n'),
        ("state", b"\xef\xbb\xbftext", "text"),
        ("state.json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("state.JSON", b'["a", "b"]', ["a", "b"]),
        ("string.json", b'"a"', "a"),
    ],
)
def test_state_may_be_a_file(tmp_path: Path, name: str, content: bytes, state: object) -> None:
    """A file is text, byte for byte, unless its name says that it is JSON."""
    path = tmp_path / name
    path.write_bytes(content)

    assert read_state(str(path)) == state


def test_state_may_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single dash is stdin."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("과금 🙂".encode())))

    assert read_state("-") == "과금 🙂"


NO_FILE = "there is no such file; if it is the state itself, pipe it to --state -."


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("", "--state is empty; give a file, a text, or - for stdin."),
        ("history.json", f"history.json: {NO_FILE}"),
        ("./log", f"./log: {NO_FILE}"),
        ("/", "/: it cannot be read (Is a directory)."),
        ("/dev/null", "/dev/null is empty; the state must hold some text."),
    ],
)
def test_state_that_is_not_there(state: str, sentence: str) -> None:
    """A misspelt path is not taken for text, and an empty file is no state."""
    with pytest.raises(InvalidInput) as caught:
        read_state(state)

    assert str(caught.value) == sentence


def test_state_in_broken_json(tmp_path: Path) -> None:
    """A fault in a JSON file is given with its line and column."""
    path = tmp_path / "state.json"
    path.write_text('{"a":\n  tru}', encoding="utf-8")

    with pytest.raises(InvalidInput) as caught:
        read_state(str(path))

    assert str(caught.value) == f"{path} is not valid JSON: Expecting value at line 2, column 3."
