"""What a person is asked, in the form of LangChain's human-in-the-loop middleware, and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from langchain.agents.middleware.human_in_the_loop import (
    ApproveDecision,
    EditDecision,
    RejectDecision,
    RespondDecision,
)
from langgraph.types import interrupt
from pydantic import AfterValidator, Discriminator, Field
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall

    from flide_agent import Decision

_Of = Field(min_length=1, max_length=1)

Answer = ApproveDecision | EditDecision | RejectDecision | RespondDecision


class ToolReview(TypedDict):
    """The answer about a tool call."""

    decisions: Annotated[list[Annotated[Answer, Discriminator("type")]], _Of]


class TextReview(TypedDict):
    """The answer about what a user or the model said."""

    decisions: Annotated[
        list[Annotated[ApproveDecision | RejectDecision, Discriminator("type")]], _Of
    ]


def review_call(decision: Decision, call: ToolCall) -> Answer:
    """Interrupt the run until a person has answered about a call.

    Whoever edits it changes its arguments; what they write runs without another decision.

    Raises:
        GraphInterrupt: until there is an answer; the same step run again gets it.
        ValidationError: the answer is not one; nothing is saved, so it can be given again.
    """
    name = call["name"]

    def of_this_tool(review: ToolReview) -> ToolReview:
        answer = review["decisions"][0]
        if answer["type"] == "edit" and answer["edited_action"]["name"] != name:
            raise ValueError(f"an edit keeps the tool: its name must be {name!r}")
        return review

    schema: Any = Annotated[ToolReview, AfterValidator(of_this_tool)]
    allowed = ["approve", "edit", "reject", "respond"]
    answer: Answer = _interrupted(decision, name, call["args"], allowed, schema)
    return answer


def review_text(decision: Decision, name: str, text: str) -> bool:
    """Interrupt the run until a person has answered about what a user or the model said.

    Returns:
        Whether it may stand.

    Raises:
        GraphInterrupt, ValidationError: as `review_call`.
    """
    answer = _interrupted(decision, name, {"text": text}, ["approve", "reject"], TextReview)
    return bool(answer["type"] == "approve")


def _interrupted(
    decision: Decision, name: str, args: dict[str, Any], allowed: list[str], schema: Any
) -> Any:
    """The answer to a `HITLRequest` about one action, with the decision beside it."""
    words = f"A policy wants a person to look at this first.\n\n{decision.reason}"
    request = {
        "action_requests": [{"name": name, "args": args, "description": words}],
        "review_configs": [{"action_name": name, "allowed_decisions": allowed}],
        "decision": shown(decision),
    }
    return interrupt(request, response_schema=schema)["decisions"][0]


def shown(decision: Decision) -> dict[str, Any]:
    """A decision as others see it: what and why, in rule ids and numbers."""
    return {
        "id": decision.id,
        "action": decision.action,
        "would": decision.would,
        "rule": decision.rule,
        "p": decision.p,
        "reason": decision.reason,
        "degraded": decision.degraded,
        "shadow": decision.shadow,
    }
