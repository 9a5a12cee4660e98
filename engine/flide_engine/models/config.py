"""Reading a model's `config.json`, whichever release of transformers wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = TypeVar("Number", int, float)


def require(config: Mapping[str, Any], name: str, kind: type[Number]) -> Number:
    """The number of that name.

    Raises:
        ModelLoadError: when it is missing or no number.
    """
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelLoadError(
            f"config.json gives {name} as {value!r}, but it must be a number; "
            "is this a complete model directory?"
        )
    return kind(value)


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters, from `rope_parameters` or the older `rope_theta` and `rope_scaling`."""
    rope = dict(config.get("rope_scaling") or {})
    rope.update(config.get("rope_parameters") or {})
    rope.setdefault("rope_type", rope.get("type", "default"))
    rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return rope
