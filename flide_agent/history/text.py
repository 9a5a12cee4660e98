"""What canonical text is made of: JSON on one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from flide_agent._json import json_fault
from flide_agent.exceptions import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CANONICAL_VERSION = 1
"""The form of canonical text. Every head depends on it, so that texts of two forms never meet."""

_compact = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_as_in_a_state = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode

# JSON leaves these line breaks as they are; as escapes they stand for the same value.
_LINE_BREAKS = tuple((char, f"\\u{ord(char):04x}") for char in "\x85\u2028\u2029")


def canonical(value: object, name: str) -> str:
    """Compact JSON on one line, its keys sorted: equal values have equal text.

    Args:
        value: what to write.
        name: what to call it in an error.

    Raises:
        InvalidInput: it is not JSON.
    """
    if not isinstance(value, str) and (fault := json_fault(value, (name,))):
        raise InvalidInput(f"{fault}.")
    return _on_one_line(_compact, value)


def value_line(value: object) -> str:
    """A JSON value as a line, written as it is in a state: with its keys in their order.

    Raises:
        InvalidInput: it is not JSON.
    """
    if fault := json_fault(value):
        raise InvalidInput(f"{fault}.")
    return _on_one_line(_as_in_a_state, value) + "\n"


def record(parts: Mapping[str, str], end: str = "") -> str:
    """The JSON of an object from its keys and the JSON of their values, in their order."""
    inside = ",".join([f'"{key}":{value}' for key, value in parts.items()])
    return f"{{{inside}}}{end}"


def _on_one_line(encode: Callable[[object], str], value: object) -> str:
    try:
        written = encode(value)
    except ValueError:
        # The one thing that the encoder refuses and `json_fault` does not see.
        raise InvalidInput("it holds an integer of thousands of digits; quote it.") from None
    if not written.isascii():
        for char, escape in _LINE_BREAKS:
            written = written.replace(char, escape)
        utf8(written)
    return written


def utf8(text: str) -> bytes:
    """The bytes of a text.

    Raises:
        InvalidInput: it holds half a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{json_fault(text)}.") from None
