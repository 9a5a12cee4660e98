"""The messages of a graph's state, whatever its form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import ToolCall


def messages_of(state: Any) -> list[Any]:
    """The messages of a state that is a map, an object with "messages", or a list of them."""
    if isinstance(state, list):
        return state
    found = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    return list(found or ())


def last_ai(messages: Sequence[Any]) -> AIMessage | None:
    """What the model said last, if anything."""
    return next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)


def open_calls(messages: Sequence[Any]) -> list[ToolCall]:
    """The tool calls that a history ends with, before any result."""
    last = messages[-1] if messages else None
    return last.tool_calls if isinstance(last, AIMessage) else []
