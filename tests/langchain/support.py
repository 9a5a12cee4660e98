"""A transport that answers from a script, and chat models that do."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from flide_agent import Answers, Choice, Client, Noul, SessionInfo, SessionNotFound
from flide_agent.client.calls import Append, Ask, Describe, SystemOne
from flide_agent.history import ROOT, extend, messages_to_history
from flide_agent.policy import MemorySink, decided, judge
from flide_agent.session_types import SessionDescription
from flide_agent.types import SystemOneResponse, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_agent import Question
    from flide_agent.session_types import AskRequest


@dataclass(frozen=True)
class Asked:
    """A question that reached the other side.

    Attributes:
        session, tenant: whose; the session is None for `system_one`.
        turns: the history.
        local: the step-local state as text.
        sent: how many turns came with this request.
        request: as it came.
    """

    session: str | None
    tenant: str | None
    turns: list[str]
    local: str
    sent: int
    request: Any

    @property
    def text(self) -> str:
        """All that is judged."""
        return "".join(self.turns) + self.local


@dataclass
class ScriptedTransport:
    """Answers every yes-or-no question, and the first option of every choice, with `opinion`.

    Attributes:
        opinion: from a question's id and what is judged to a probability.
        asked: what reached it, replays left out.
        fault: raised instead of answering, if there is one.
    """

    opinion: Callable[[str, Asked], float] = lambda question, asked: 0.0
    asked: list[Asked] = field(default_factory=list)
    fault: Exception | None = None
    replays: int = 0
    _held: dict[tuple[Any, str], dict[str, list[str]]] = field(default_factory=dict)
    _receipts: dict[tuple[Any, str, str], Answers] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        """Reply at once."""
        with self._lock:
            if self.fault is not None:
                raise self.fault
            match call:
                case SystemOne(request):
                    return self._system_one(request, tenant)
                case Ask(session, request):
                    return self._ask(session, request, tenant)
                case Append(session, request):
                    head, turns = self._placed(session, request, tenant)
                    return SessionInfo(id=session, head=head, tokens=sum(map(len, turns)))
                case Describe(session, at):
                    turns = self._held[tenant, session][at or ROOT]
                    return SessionDescription(id=session, head=at or ROOT, tokens=0, turns=turns)
        raise AssertionError(f"not in the script: {call!r}")

    async def asend(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        """Reply at once."""
        return self.send(call, tenant=tenant, timeout=timeout)

    def watch(self, *args: Any, **kwargs: Any) -> Callable[[], None]:
        """Nobody watches here."""
        raise AssertionError("not in the script")

    def close(self) -> None:
        """Nothing is held."""

    async def aclose(self) -> None:
        """Nothing is held."""

    def _system_one(self, request: Any, tenant: str | None) -> SystemOneResponse:
        asked = Asked(None, tenant, [str(request.state)], "", 1, request)
        self.asked.append(asked)
        return SystemOneResponse(
            model="scripted",
            answers=self._answers(request.questions, asked),
            usage=Usage(input_tokens=7, output_tokens=0),
        )

    def _ask(self, session: str, request: AskRequest, tenant: str | None) -> Answers:
        head, turns = self._placed(session, request, tenant)
        state = [] if request.state is None else messages_to_history([request.state])
        local = "".join(turn.text for turn in state)
        receipt = (tenant, session, request.key or "")
        if receipt in self._receipts:
            self.replays += 1
            return _replayed(self._receipts[receipt])
        asked = Asked(session, tenant, turns, local, len(request.messages), request)
        self.asked.append(asked)
        policy = request.policy
        questions = policy.questions(request.tool) if policy else request.questions or {}
        answers = Answers(
            model="scripted",
            answers=self._answers(questions, asked),
            usage=Usage(input_tokens=7, output_tokens=0),
            x_session=SessionInfo(id=session, head=head, tokens=len(turns)),
        )
        if policy:
            verdict = judge(policy, answers.answers, tool=request.tool)
            decision = decided(policy, verdict, tool=request.tool, model="scripted")
            answers = answers.model_copy(update={"x_decision": decision})
        if request.key is not None:
            self._receipts[receipt] = answers
        return answers

    def _placed(self, session: str, request: Any, tenant: str | None) -> tuple[str, list[str]]:
        held = self._held.setdefault((tenant, session), {ROOT: []})
        if (parent := request.parent or ROOT) not in held:
            raise SessionNotFound(f"no head {parent}")
        turns = held[parent]
        heads = extend(parent, request.messages)
        for head, text in zip(heads, request.messages, strict=True):
            turns = [*turns, text]
            held[head] = turns
        return (heads or [parent])[-1], turns

    def _answers(self, questions: dict[str, Question], asked: Asked) -> dict[str, Any]:
        return {key: self._answer(key, q, asked) for key, q in questions.items()}

    def _answer(self, key: str, question: Question, asked: Asked) -> dict[str, Any]:
        p = self.opinion(key, asked)
        if isinstance(question, Noul):
            return {"type": "noul", "noul": p}
        assert isinstance(question, Choice)
        first, *others = question.criteria
        shares = {first: p, **{name: (1 - p) / len(others) for name in others}}
        best = max(shares, key=shares.__getitem__)
        return {"type": "choice", "choice": best, "probabilities": shares, "confidence": p}


def _replayed(answers: Answers) -> Answers:
    if answers.x_decision is None:
        return answers
    decision = dataclasses.replace(answers.x_decision, replayed=True)
    return answers.model_copy(update={"x_decision": decision})


@dataclass
class Stage:
    """A client on a scripted transport."""

    transport: ScriptedTransport
    audit: MemorySink
    client: Client


def stage(opinion: Callable[[str, Asked], float] | None = None) -> Stage:
    """A client whose other side has this opinion; without one it finds nothing wrong."""
    transport = ScriptedTransport() if opinion is None else ScriptedTransport(opinion)
    audit = MemorySink()
    return Stage(transport, audit, Client(transport=transport, audit=audit))


class ScriptedChat(BaseChatModel):
    """Says its lines in order, one a call.

    Attributes:
        lines: what it says.
        heard: the messages of every call.
    """

    lines: list[AIMessage]
    heard: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        line = self.lines[len(self.heard)]
        self.heard.append(messages)
        return ChatResult(generations=[ChatGeneration(message=line.model_copy())])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """It calls tools as its lines say."""
        return self


def calls(*made: tuple[str, dict[str, Any]], first: int = 0) -> AIMessage:
    """A message that calls tools; the ids are call0 and so on."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": args, "id": f"call{number}"}
            for number, (name, args) in enumerate(made, first)
        ],
    )
