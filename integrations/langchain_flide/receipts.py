"""Decisions kept in an agent's state, so that a step that is run again needs no second one."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import AgentState, PrivateStateAttr

from flide_agent import Decision


def _merge(held: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    """Each guard replaces what it notes, and leaves the rest of its notes and all others."""
    merged = dict(held or {})
    for guard, notes in (new or {}).items():
        merged[guard] = {**merged.get(guard, {}), **notes}
    return merged


class GuardState(AgentState[Any]):
    """An agent's state with the receipts of the step under way, by guard. Nobody else sees them.

    A guard notes, as JSON, an "input" or "output" that waits for a review, and the decisions about
    the "calls" made last, by id, each with a digest of what was judged.
    """

    decision_guard: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, _merge]]


def noted(guard: str, notes: dict[str, Any]) -> dict[str, Any]:
    """An update of the state."""
    return {"decision_guard": {guard: notes}}


def notes_of(state: Any, guard: str) -> dict[str, Any]:
    """What a guard has noted in a state."""
    if not isinstance(state, dict):
        return {}
    notes: dict[str, Any] = (state.get("decision_guard") or {}).get(guard) or {}
    return notes


def receipt(subject: str, decision: Decision) -> dict[str, str]:
    """A decision about a call, and the digest of what was judged."""
    return {"of": subject, "decision": decision.to_json()}


def replay(held: dict[str, str] | None, subject: str) -> Decision | None:
    """The decision of a receipt, if it is about just this."""
    return None if held is None or held["of"] != subject else reread(held["decision"])


def reread(written: str) -> Decision:
    """A decision that was made before."""
    return dataclasses.replace(Decision.from_json(written), replayed=True)
