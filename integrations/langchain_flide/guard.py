"""What a guard does at each place, as steps that know nothing of threads or event loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langgraph.types import Command

from langchain_flide.deciding import Desk, On, Pending, Run
from langchain_flide.events import announce
from langchain_flide.messages import last_ai, messages_of
from langchain_flide.receipts import noted, notes_of, receipt, replay, reread
from langchain_flide.replies import answered, not_run, refusal, rejected, with_notice
from langchain_flide.review import review_call, review_text

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
    from langchain_core.messages import AIMessage

    from flide_agent import Decision
    from langchain_flide.deciding import Steps
    from langchain_flide.prompts import Prompts


@dataclass(frozen=True, slots=True)
class Guard:
    """A policy at the places of an agent.

    Attributes:
        name: in the graph.
        desk: who decides.
        prompts: how the agents' histories begin.
        on: the places.
        review: what happens to what should be reviewed.
    """

    name: str
    desk: Desk
    prompts: Prompts
    on: frozenset[On]
    review: Literal["interrupt", "block"]

    def input(self, state: Any, runtime: Any) -> Steps[dict[str, Any] | None]:
        """Judge what the model will be called with; a block jumps to the end."""
        messages = messages_of(state)
        # What an earlier run left behind that broke off is settled by this decision.
        left = {k: None for k in ("input", "output") if notes_of(state, self.name).get(k)}
        if not messages or not self._judges("input"):
            return noted(self.name, left) if left else None
        opening = self.prompts.opening(self.desk.sessions.place())
        pending = Pending("input", [*opening, *messages])
        (decision,) = yield from self._decide([pending], runtime)
        if self._blocks(decision):
            said = refusal(decision, "This request")
            return {"jump_to": "end", "messages": [said], **noted(self.name, left)}
        if decision.action == "review":
            return noted(self.name, {**left, "input": decision.to_json()})
        return noted(self.name, left) if left else None

    def model_call(
        self, request: ModelRequest[Any]
    ) -> Steps[ModelResponse[Any] | ExtendedModelResponse[Any]]:
        """Judge the calls that the model makes, or its last word, where its prompt is seen."""
        messages, runtime = messages_of(request.state), request.runtime
        opening = self.prompts.see(self.desk.sessions.place(), request)
        held = notes_of(request.state, self.name)
        notes: dict[str, Any] = {key: None for key in ("input", "output") if held.get(key)}
        if held.get("input"):
            decision = reread(held["input"])
            if not self._approved(decision, Pending("input", messages), runtime):
                return self._instead(refusal(decision, "This request"), notes)
        response: ModelResponse[Any] = yield Run(request)
        said = last_ai(response.result)
        history = [*opening, *messages, *response.result]
        if said is not None and said.tool_calls and response.structured_response is None:
            notes["calls"] = yield from self._calls(said, history, runtime)
        elif said is not None and self._judges("output"):
            (decision,) = yield from self._decide([Pending("output", history)], runtime)
            if self._blocks(decision):
                return self._instead(refusal(decision, "This answer", message_id=said.id), notes)
            if decision.action == "review":
                notes["output"] = decision.to_json()
        return self._with(response, notes)

    def tool_call(self, request: ToolCallRequest) -> Steps[Any]:
        """Let a call run, or not, as it was decided; decide now if it is not the one judged."""
        call = request.tool_call
        if not self._judges("tool", call["name"]):
            return (yield Run(request))
        subject = self.desk.subject(call)
        calls = notes_of(request.state, self.name).get("calls") or {}
        decision = replay(calls.get(call["id"]), subject)
        opening = self.prompts.opening(self.desk.sessions.place())
        pending = Pending("tool", [*opening, *messages_of(request.state)], call)
        if decision is None:
            (decision,) = yield from self._decide([pending], request.runtime)
        if self._blocks(decision):
            return not_run(call, decision)
        if decision.action == "allow":
            return (yield Run(request))
        answer = review_call(decision, call)
        announce(request.runtime.stream_writer, self.name, pending, decision, answer=answer["type"])
        if answer["type"] == "reject":
            return rejected(call, decision, answer.get("message"))
        if answer["type"] == "respond":
            return answered(call, decision, answer["message"])
        if answer["type"] == "approve":
            return (yield Run(request))
        args = answer["edited_action"]["args"]
        result = yield Run(request.override(tool_call={**call, "args": args}))
        return with_notice(result, call, args)

    def last_word(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let a person look at the last word, if that was decided."""
        held = notes_of(state, self.name).get("output")
        said = last_ai(messages_of(state))
        if not held or said is None:
            return None
        decision, settled = reread(held), noted(self.name, {"output": None})
        if self._approved(decision, Pending("output", [said]), runtime):
            return settled
        instead: dict[str, Any] = {
            "messages": [refusal(decision, "This answer", message_id=said.id)]
        }
        if state.get("structured_response") is not None:
            instead["structured_response"] = None
        return {**instead, **settled}

    def _judges(self, on: On, tool: str | None = None) -> bool:
        return on in self.on and self.desk.asks_about(tool)

    def _blocks(self, decision: Decision) -> bool:
        return decision.action == "block" or (
            decision.action == "review" and self.review == "block"
        )

    def _decide(self, pending: list[Pending], runtime: Any) -> Steps[list[Decision]]:
        info = runtime.execution_info
        decisions: list[Decision] = yield [self.desk.keyed(one, info) for one in pending]
        for one, decision in zip(pending, decisions, strict=True):
            announce(runtime.stream_writer, self.name, one, decision)
        return decisions

    def _calls(self, said: AIMessage, history: list[Any], runtime: Any) -> Steps[dict[str, Any]]:
        """Receipts for the calls that a message makes, each decided by itself."""
        pending = [
            Pending("tool", history, call)
            for call in said.tool_calls
            if self._judges("tool", call["name"])
        ]
        if not pending:
            return {}
        decisions = yield from self._decide(pending, runtime)
        return {
            one.call["id"]: receipt(self.desk.subject(one.call), decision)
            for one, decision in zip(pending, decisions, strict=True)
            if one.call is not None and one.call["id"]
        }

    def _approved(self, decision: Decision, pending: Pending, runtime: Any) -> bool:
        """Whether a person approves of what a user or the model said."""
        approved = review_text(decision, pending.on, pending.messages[-1].text)
        answer = "approve" if approved else "reject"
        announce(runtime.stream_writer, self.name, pending, decision, answer=answer)
        return approved

    def _instead(self, said: AIMessage, notes: dict[str, Any]) -> ExtendedModelResponse[Any]:
        """A last word in place of the model's."""
        update = {"jump_to": "end", **noted(self.name, notes)}
        return ExtendedModelResponse(ModelResponse([said]), Command(update=update))

    def _with(
        self, response: ModelResponse[Any], notes: dict[str, Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if not notes:
            return response
        return ExtendedModelResponse(response, Command(update=noted(self.name, notes)))
