"""Decisions as events of a graph's custom stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_flide.review import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_agent import Decision
    from langchain_flide.deciding import Pending


def announce(
    write: Callable[[Any], None],
    guard: str,
    pending: Pending,
    decision: Decision,
    *,
    answer: str | None = None,
) -> None:
    """Tell who listens to `stream_mode="custom"` of a decision. It holds no text of messages.

    Args:
        write: the runtime's stream writer.
        guard: who decided.
        pending: what it was about.
        decision: what it is.
        answer: what a person said to it.
    """
    write(
        {
            "type": "decision",
            "guard": guard,
            "on": pending.on,
            "tool": pending.tool,
            "tool_call_id": None if pending.call is None else pending.call["id"],
            **shown(decision),
            "replayed": decision.replayed,
            "answer": answer,
        }
    )
