"""Between the wire and the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_agent.types import SystemOneResponse
from flide_engine.formats.answers import to_json

if TYPE_CHECKING:
    from flide_engine.engine import Result


def to_response(result: Result, model_name: str) -> SystemOneResponse:
    """Write what the engine decided as a System One response.

    Args:
        result: from `Engine.decide`.
        model_name: the model that answered.
    """
    return SystemOneResponse.model_validate(
        {
            "model": model_name,
            "answers": {key: to_json(answer) for key, answer in result.answers.items()},
            "usage": result.usage,
            "x_reuse": result.reuse,
            "x_timing": result.timing,
        },
        from_attributes=True,
    )
