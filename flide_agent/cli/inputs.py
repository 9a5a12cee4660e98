"""The files and texts that a command is given."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

from flide_agent import InvalidInput, parse_questions
from flide_agent._json import decode, load_json

if TYPE_CHECKING:
    from flide_agent import Question

# One word with a file extension, or one that starts like a path.
_PATH_LIKE = re.compile(r"\S+\.[A-Za-z]{2,5}|[.~]*/\S+")


def read_state(argument: str) -> Any:
    """Read a state from stdin ("-"), from a file, or from the argument itself.

    Raises:
        InvalidInput: there is nothing to read, or it cannot be read.
    """
    if argument == "-":
        return _text(sys.stdin.buffer.read(), "stdin")
    if os.path.exists(argument):
        data = read_file(argument)
        is_json = argument.lower().endswith(".json")
        return load_json(data, argument) if is_json else _text(data, argument)
    if _PATH_LIKE.fullmatch(argument):
        raise InvalidInput(
            f"{argument}: there is no such file; if it is the state itself, pipe it to --state -."
        )
    if not argument.strip():
        raise InvalidInput("--state is empty; give a file, a text, or - for stdin.")
    return argument


def read_questions(path: str) -> dict[str, Question]:
    """Read a file of questions, or of a whole request.

    Raises:
        InvalidInput: it cannot be read, or a question breaks a rule.
    """
    data = read_file(path)
    try:
        return parse_questions(data)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def read_file(path: str) -> bytes:
    """The bytes of a file.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInput(f"{path}: it cannot be read ({error.strerror}).") from None


def _text(data: bytes, name: str) -> str:
    text = decode(data, name)
    if not text.strip():
        raise InvalidInput(f"{name} is empty; the state must hold some text.")
    return text
