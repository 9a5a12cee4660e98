"""What any decision model, and any middleware that guards tools by one, must do.

LangChain has such suites for chat models and tools only. To test a model or middleware of your own,
derive from a class and define its fixture.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.decisions import Box, Choice, ClassifierResponse, Noul, NoulCriteria, Score
from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from tests.langchain.support import ScriptedChat, calls

if TYPE_CHECKING:
    from langchain_core.decisions import BaseDecisionModel

QUESTIONS: dict[str, Any] = {
    "safe": Noul(instructions="Is it safe?", criteria=NoulCriteria(true="It is.", false=None)),
    "route": Choice(instructions="Which?", criteria={"left": "To the left.", "right": None}),
    "level": Score(instructions="How bad?", criteria=["fine", "bad", {"worse": ["than", "bad"]}]),
}

CALL = calls(("remove", {"path": "/old"}))
HISTORY: list[BaseMessage] = [
    SystemMessage("You clean up."),
    HumanMessage("Remove the old files."),
    CALL,
    ToolMessage("removed", tool_call_id="call0"),
    AIMessage("They are gone."),
]

STATES: dict[str, Any] = {
    "text": "The build is red.",
    "map": {"build": "red", "tests": [1, None, 2.5]},
    "message": HumanMessage("Hello"),
    "messages": HISTORY,
    "call": {"messages": HISTORY[:3], "tool_call": CALL.tool_calls[0]},
    "nested": {"before": {"said": [HISTORY[1], HISTORY[4]]}, "then": [HISTORY[1], "and so on"]},
    "media": HumanMessage([{"type": "image", "base64": "QUJD", "mime_type": "image/png"}]),
    "media block": {"seen": {"type": "image", "url": "https://example.org/a.png"}},
}

each_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES)


def as_request(text: str) -> Any:
    """Questions about a text."""
    return {"state": text, "questions": QUESTIONS}


class DecisionModelTests:
    """What any decision model must do."""

    @pytest.fixture
    def model(self) -> BaseDecisionModel:
        """The model under test."""
        raise NotImplementedError

    @each_state
    def test_answers_every_question_in_its_kind(self, model: BaseDecisionModel, state: Any) -> None:
        """The ids are those asked, in their order, and the numbers are probabilities."""
        response = model.invoke({"state": state, "questions": QUESTIONS})

        assert isinstance(response, ClassifierResponse)
        assert list(response.answers) == list(QUESTIONS)
        assert 0 <= response.nouls["safe"].noul <= 1
        route, level = response.choices["route"], response.scores["level"]
        assert route.probabilities.keys() == {"left", "right"}
        assert route.choice == max(route.probabilities, key=route.probabilities.__getitem__)
        assert level.legend == dict(enumerate(QUESTIONS["level"].criteria))
        for shares in (route.probabilities, level.probabilities):
            assert sum(shares.values()) == pytest.approx(1)
        expected = sum(n * p for n, p in level.probabilities.items())
        assert level.score == pytest.approx(expected)

    @each_state
    def test_async_answers_are_the_same(self, model: BaseDecisionModel, state: Any) -> None:
        """Whether there is an event loop changes no answer."""
        request: Any = {"state": state, "questions": QUESTIONS}

        awaited = asyncio.run(model.ainvoke(request))

        assert awaited.answers == near(model.invoke(request).answers)

    def test_composes(self, model: BaseDecisionModel) -> None:
        """It is a runnable among others, one by one and in batches."""
        chain: Any = RunnableLambda(as_request) | model
        texts = ["one", "two"]

        batch = chain.batch(texts)
        awaited = asyncio.run(chain.abatch(texts))

        assert [r.answers for r in batch] == near([chain.invoke(t).answers for t in texts])
        assert [r.answers for r in awaited] == near([r.answers for r in batch])

    def test_usage(self, model: BaseDecisionModel) -> None:
        """Tokens are counted, and their total is their sum."""
        usage = model.invoke({"state": HISTORY, "questions": QUESTIONS}).usage

        assert usage is not None
        assert usage["input_tokens"] > 0
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

    def test_is_traced_as_a_model(self, model: BaseDecisionModel) -> None:
        """A run is of type llm and names the provider and the model."""
        seen = RunCollectorCallbackHandler()
        model.invoke({"state": "x", "questions": QUESTIONS}, {"callbacks": [seen]})

        (run,) = seen.traced_runs
        assert run.run_type == "llm"
        metadata = (run.extra or {})["metadata"]
        assert metadata["ls_provider"]
        assert metadata["ls_model_name"] == model.model

    def test_what_cannot_be_asked_is_a_model_error(self, model: BaseDecisionModel) -> None:
        """Questions that it cannot answer, or that are malformed, are errors and no guesses."""
        for questions in ({"where": Box(instructions="Where?")}, {}):
            with pytest.raises(ModelError):
                model.invoke({"state": "x", "questions": questions})
            with pytest.raises(ModelError):
                asyncio.run(model.ainvoke({"state": "x", "questions": questions}))

    def test_ids_and_forms_change_nothing(self, model: BaseDecisionModel) -> None:
        """Equal messages are equal, whichever way they are written down."""
        again = [
            m.model_copy(update={"id": "another", "content": [{"type": "text", "text": m.text}]})
            if m.text
            else m
            for m in HISTORY
        ]

        one, other = (
            model.invoke({"state": state, "questions": QUESTIONS}) for state in (HISTORY, again)
        )

        assert one.answers == near(other.answers)

    def test_is_not_serialised_by_accident(self, model: BaseDecisionModel) -> None:
        """Clients and keys do not end in a trace or a file."""
        assert not model.is_lc_serializable()
        assert "client" not in model.model_dump()


class GuardTests:
    """What middleware that guards the tools "wipe" and "ask" must do: it blocks calls with
    "now": true."""

    @pytest.fixture
    def guard(self) -> AgentMiddleware[Any, Any, Any]:
        """The middleware under test."""
        raise NotImplementedError

    @pytest.fixture(params=[False, True], ids=["sync", "async"])
    def run(self, request: pytest.FixtureRequest, guard: Any) -> Any:
        """Runs an agent on a script; the log is what tools did."""
        log: list[str] = []

        @tool
        def wipe(now: bool) -> str:
            """Wipe it."""
            log.append(f"wipe {now}")
            return "wiped"

        @tool
        def look() -> str:
            """Look at it."""
            log.append("look")
            return "seen"

        @tool
        def ask() -> str:
            """Ask a person."""
            answer: str = interrupt("what?")
            log.append(answer)
            return answer

        def play(*lines: AIMessage, resume: Any = None) -> tuple[list[str], Any]:
            agent: Any = create_agent(
                ScriptedChat(lines=[*lines, AIMessage("done")]),
                tools=[wipe, look, ask],
                middleware=[guard],
                checkpointer=InMemorySaver(),
            )
            config: Any = {"configurable": {"thread_id": "t"}}
            given: list[Any] = [{"messages": [HumanMessage("Go.")]}]
            given += [] if resume is None else [Command(resume=resume)]
            for one in given:
                if request.param:
                    result = asyncio.run(agent.ainvoke(one, config))
                else:
                    result = agent.invoke(one, config)
            return log, result

        return play

    def test_allowed_calls_run(self, run: Any) -> None:
        """And the agent goes on with their result."""
        log, result = run(calls(("wipe", {"now": False})))

        assert log == ["wipe False"]
        assert result["messages"][-1].text == "done"

    def test_blocked_calls_get_an_error(self, run: Any) -> None:
        """The tool does not run, the agent does."""
        log, result = run(calls(("wipe", {"now": True})))

        blocked = result["messages"][-2]
        assert log == []
        assert (blocked.status, blocked.tool_call_id) == ("error", "call0")
        assert result["messages"][-1].text == "done"

    def test_calls_side_by_side_are_apart(self, run: Any) -> None:
        """One that is blocked stops no other."""
        log, result = run(calls(("wipe", {"now": True}), ("wipe", {"now": False}), ("look", {})))

        statuses = {m.tool_call_id: m.status for m in result["messages"] if m.type == "tool"}
        assert sorted(log) == ["look", "wipe False"]
        assert statuses == {"call0": "error", "call1": "success", "call2": "success"}

    def test_a_tool_s_own_interrupt_passes_through(self, run: Any) -> None:
        """And its answer reaches the tool."""
        log, result = run(calls(("ask", {})), resume="this")

        assert log == ["this"]
        assert result["messages"][-1].text == "done"

    def test_texts_stay_out_of_traces(self, guard: Any) -> None:
        """Its hooks record no conversation."""
        assert guard.trace_policy.process_inputs({"messages": ["secret"]}) == {}

    def test_has_both_twins_of_every_hook(self, guard: Any) -> None:
        """A hook that is there with an event loop is there without one."""
        for hook in (
            *("before_agent", "before_model", "after_model", "after_agent"),
            *("wrap_model_call", "wrap_tool_call"),
        ):
            kind = type(guard)
            plain = getattr(kind, hook) is not getattr(AgentMiddleware, hook)
            awaited = getattr(kind, f"a{hook}") is not getattr(AgentMiddleware, f"a{hook}")
            assert plain is awaited, hook


def near(value: Any) -> Any:
    """Answers that may differ by what batches round differently."""
    if isinstance(value, list):
        return [near(one) for one in value]
    return {key: Near(answer) for key, answer in value.items()}


class Near:
    """Equal to an answer with nearly the same numbers."""

    def __init__(self, answer: Any) -> None:
        self._fields = answer.model_dump()

    def __eq__(self, other: object) -> bool:
        return _near(self._fields, other.model_dump() if hasattr(other, "model_dump") else other)

    def __repr__(self) -> str:
        return f"Near({self._fields})"

    __hash__ = None  # type: ignore[assignment]


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return bool(other == pytest.approx(one, abs=1e-6))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_near(v, other[k]) for k, v in one.items())
    return bool(one == other)
