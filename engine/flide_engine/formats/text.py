"""What callers may write where text is wanted, and how it reads to the model."""

from __future__ import annotations

import json
from reprlib import repr as brief
from typing import Any, TypeAlias

from flide_engine.errors import InvalidRequest

Text: TypeAlias = str | dict[str, Any] | list[Any] | tuple[Any, ...] | None
"""A string, a JSON object, a JSON array, or nothing."""

# json.dumps leaves these line breaks as they are; as escapes they stand for the same value.
_LINE_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def render(text: Text, where: str = "text") -> str:
    """The text as the model reads it.

    Args:
        text: a string is taken verbatim, an object or array becomes JSON on one line with its keys
            in their order, None becomes "".
        where: what the text is, for the error message.

    Raises:
        InvalidRequest: it is of another type, or holds what JSON or UTF-8 cannot carry.
    """
    if text is None:
        return ""
    if isinstance(text, str):
        rendered = text
    elif isinstance(text, (dict, list, tuple)):
        rendered = _json(text, where)
    else:
        raise InvalidRequest(
            f"{where} is {brief(text)} of type {type(text).__name__}, but must be a string, an "
            "object or an array: write it as one"
        )
    try:
        rendered.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{where} holds the lone surrogate {rendered[error.start]!a} at character "
            f"{error.start}, which is not Unicode text: send the whole pair or leave it out"
        ) from None
    return rendered


def one_line(text: Text) -> str:
    """The text on one line: verbatim unless it breaks lines, then quoted as a JSON string.

    A name or description that could break the line could pass for an option of its own.
    """
    rendered = render(text)
    return rendered if "".join(rendered.splitlines()) == rendered else quote(rendered)


def quote(value: object) -> str:
    """The JSON of a value whose validity is known, on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).translate(_LINE_BREAKS)


def _json(value: dict[str, Any] | list[Any] | tuple[Any, ...], where: str) -> str:
    try:
        rendered = quote(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"{where} is not valid JSON ({error}): send objects, arrays, strings, finite numbers, "
            "booleans and null"
        ) from error
    _check_keys(value, where)
    return rendered


def _check_keys(value: object, where: str) -> None:
    # json.dumps writes the keys 1 and True as strings, so two keys could become one.
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, str):
                    raise InvalidRequest(
                        f"{where} holds the key {brief(key)}, but the keys of an object are "
                        "strings: quote it"
                    )
            pending.extend(item.values())
        elif isinstance(item, (list, tuple)):
            pending.extend(item)
