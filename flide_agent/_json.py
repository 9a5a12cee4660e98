"""JSON as a request may hold it: finite numbers, whole characters, no key twice.

Python's own reader lets NaN, halves of surrogate pairs and repeated keys through. The first two
cannot be sent on, and of a repeated key one value would silently be lost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flide_agent.exceptions import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MAX_DEPTH = 200
"""Levels of nesting that are read; far below what Python's own recursion allows."""

_SHOWN = 40


def load_json(text: str | bytes, name: str) -> Any:
    """Parse JSON text.

    Args:
        text: the document; bytes are UTF-8, a byte order mark is skipped.
        name: what to call the document in an error.

    Raises:
        InvalidInput: it is empty, not UTF-8, not JSON, nested too deeply, or repeats a key.
    """
    decoded = decode(text, name) if isinstance(text, bytes) else text
    if not decoded.strip():
        raise InvalidInput(f"{name} is empty; JSON was expected.")
    try:
        return json.loads(decoded, object_pairs_hook=_unique)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{name} is not valid JSON: {error.msg} at {place}.") from None
    except RecursionError:
        raise InvalidInput(
            f"{name} is nested deeper than {_MAX_DEPTH} levels; flatten it."
        ) from None
    except ValueError:
        # The one other thing the reader refuses: an integer longer than Python converts.
        raise InvalidInput(f"{name} holds an integer of thousands of digits; quote it.") from None


def decode(data: bytes, name: str) -> str:
    """Read bytes as UTF-8 text, without its byte order mark.

    Raises:
        InvalidInput: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02x} at position {error.start}"
        raise InvalidInput(f"{name} is not UTF-8 text: {byte}; save it as UTF-8.") from None


def json_fault(value: object, path: tuple[str | int, ...] = ()) -> str | None:
    """Say what keeps a value from being JSON, without its full stop, or None if nothing does."""
    if len(path) > _MAX_DEPTH:
        return f"it is nested deeper than {_MAX_DEPTH} levels; flatten it"
    if isinstance(value, str):
        return _text_fault(value, path)
    if value is None or isinstance(value, (bool, int)):
        return None
    if isinstance(value, float):
        return (
            None
            if math.isfinite(value)
            else f"{value} is not a number in JSON{_at(path)}; use null"
        )
    if not isinstance(value, (dict, list, tuple)):
        return f"{describe(value)} is not JSON{_at(path)}; convert it first"
    if isinstance(value, dict) and (fault := _keys_fault(value, path)):
        return fault
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if fault := json_fault(item, (*path, key)):
            return fault
    return None


def describe(value: object) -> str:
    """Name a value for an error: its kind, and itself when it is short."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    if isinstance(value, Mapping):
        return "a map"
    return "an array" if isinstance(value, (list, tuple)) else f"a Python {type(value).__name__}"


def quote(text: str) -> str:
    """Quote text for an error: shortened, on one line, safe to print."""
    short = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return json.dumps(short, ensure_ascii=not short.isprintable())


def where(path: Sequence[str | int]) -> str:
    """Write a path into a document: `questions.severity.score.criteria[2]`."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else _step(part) for part in path
    ).removeprefix(".")


def _step(key: str) -> str:
    return f".{key}" if re.fullmatch(r"[\w-]+", key) else f".{quote(key)}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for key, value in pairs:
        if key in unique:
            raise InvalidInput(f"the key {quote(key)} appears twice in one map; keep one of them.")
        unique[key] = value
    return unique


def _keys_fault(keys: Iterable[object], path: tuple[str | int, ...]) -> str | None:
    for key in keys:
        if not isinstance(key, str):
            return f"{describe(key)} is not text, as the keys of a map must be{_at(path)}; quote it"
        if fault := _text_fault(key, path):
            return fault
    return None


def _text_fault(text: str, path: tuple[str | int, ...]) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"the lone surrogate \\u{ord(text[error.start]):04x}"
        return f"{half} is half a character{_at(path)}; write the whole one or drop it"
    return None


def _at(path: tuple[str | int, ...]) -> str:
    return f" (at {where(path)})" if path else ""
