"""Responses in the wire format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from flide_agent import SystemOneResponse

ANSWERED: dict[str, Any] = {
    "model": "smollm2",
    "answers": {
        "a": {"type": "noul", "noul": 0.25},
        "b": {
            "type": "choice",
            "choice": "환불",
            "probabilities": {"환불": 0.75, "": 0.25},
            "confidence": 0.5,
        },
        "c": {
            "type": "score",
            "score": 0.5,
            "legend": {"0": "calm", "1": {"label": "angry", "note": None}},
            "probabilities": {"0": 0.5, "1": 0.5},
            "confidence": 0.0,
        },
    },
    "usage": {"input_tokens": 12, "output_tokens": 0},
    "x_reuse": {"new_tokens": 12, "reused_tokens": 0, "source": "none", "choice": ""},
    "x_timing": {"plan_ms": 1.0, "run_ms": 2.0, "total_ms": 3.0},
}


def test_round_trips() -> None:
    """A response is written as it was read."""
    answered = SystemOneResponse.model_validate(ANSWERED)

    assert json.loads(answered.model_dump_json()) == ANSWERED


def test_reads_other_servers() -> None:
    """Our extensions may be missing, and those of others are ignored."""
    plain = {key: ANSWERED[key] for key in ("model", "answers", "usage")}

    assert SystemOneResponse.model_validate({**plain, "x_cost": 1}).x_reuse is None


def test_every_extension_is_marked() -> None:
    """Fields that System One does not define start with x_."""
    written = {name for name, field in SystemOneResponse.model_fields.items() if not field.exclude}
    extensions = written - {"model", "answers", "usage"}

    assert all(name.startswith("x_") for name in extensions)


@pytest.mark.parametrize("noul", [float("nan"), float("inf"), -0.1, 1.1])
def test_refuses_what_is_no_probability(noul: float) -> None:
    """No NaN, no infinity and nothing outside 0 to 1 leaves as a probability."""
    with pytest.raises(ValidationError):
        SystemOneResponse.model_validate(
            {**ANSWERED, "answers": {"a": {"type": "noul", "noul": noul}}}
        )
