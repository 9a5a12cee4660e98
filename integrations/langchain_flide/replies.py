"""What stands in the conversation where something was blocked, rejected or changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, ToolMessage

from langchain_flide.review import shown

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall

    from flide_agent import Decision


def refusal(decision: Decision, what: str, *, message_id: str | None = None) -> AIMessage:
    """What is said instead of the model's word.

    Args:
        decision: why.
        what: what was refused, such as "This request".
        message_id: of the message whose place it takes.
    """
    return AIMessage(
        f"{what} was stopped by a policy{_because(decision)}.",
        id=message_id,
        additional_kwargs={"decision": shown(decision)},
    )


def not_run(call: ToolCall, decision: Decision) -> ToolMessage:
    """The result of a call that a policy blocks."""
    return _result(
        call,
        f"The call of {call['name']} did not run: it was stopped by a policy{_because(decision)}. "
        "Do not call it again with the same arguments.",
        decision,
        "error",
    )


def rejected(call: ToolCall, decision: Decision, words: str | None) -> ToolMessage:
    """The result of a call that a person rejects."""
    why = f": {words}" if words else ". Do not call it again unless the user asks for it."
    return _result(call, f"The call of {call['name']} was rejected{why}", decision, "error")


def answered(call: ToolCall, decision: Decision, words: str) -> ToolMessage:
    """The result of a call that a person answers instead of the tool."""
    return _result(call, words, decision, "success")


def with_notice(result: Any, call: ToolCall, ran: dict[str, Any]) -> Any:
    """The result of a call that ran with other arguments, which the model must know of."""
    if not isinstance(result, ToolMessage):
        return result
    args = json.dumps(ran, ensure_ascii=False, default=repr)
    notice = f"A person changed this call of {call['name']} before it ran, to {args}.\n"
    if isinstance(result.content, str):
        return result.model_copy(update={"content": notice + result.content})
    blocks = [{"type": "text", "text": notice}, *result.content]
    return result.model_copy(update={"content": blocks})


def _result(call: ToolCall, words: str, decision: Decision, status: Any) -> ToolMessage:
    return ToolMessage(
        words,
        name=call["name"],
        tool_call_id=call["id"] or "",
        status=status,
        additional_kwargs={"decision": shown(decision)},
    )


def _because(decision: Decision) -> str:
    if decision.rule is not None:
        return f" ({decision.rule})"
    return " that could not be asked" if decision.degraded else ""
