"""What should be reviewed waits for a person, and is decided once."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware.human_in_the_loop import HITLRequest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from pydantic import TypeAdapter, ValidationError

from langchain_flide import DecisionMiddleware
from tests.langchain.agents import (
    REFUNDS,
    TALK,
    Run,
    both,
    by_amount,
    by_last,
    guarded,
    look_up,
    ran,
    refund,
    results,
)
from tests.langchain.support import calls, stage

APPROVE = {"type": "approve"}
REJECT = {"type": "reject", "message": "not today"}
LARGE = [calls(("refund", {"order": "A", "amount": 500})), AIMessage("done")]


@both
def test_approved(use_async: bool) -> None:
    """The run waits, goes on when approved, and the engine was asked once."""
    scene = stage(by_amount)
    run = guarded(scene, REFUNDS, LARGE, use_async=use_async)

    waiting = run("Refund A.")
    assert ran == []
    (pending,) = waiting["__interrupt__"]
    messages = run.answer(APPROVE)["messages"]

    assert ran == ["refund A 500"]
    assert messages[-1].text == "done"
    assert len(scene.transport.asked) == len(scene.audit.records) == 1
    request = TypeAdapter(HITLRequest).validate_python(pending.value)
    assert request["action_requests"][0]["name"] == "refund"
    assert request["action_requests"][0]["args"] == {"order": "A", "amount": 500}
    assert "large" in request["action_requests"][0]["description"]
    assert "approve" in request["review_configs"][0]["allowed_decisions"]


@pytest.mark.parametrize(
    ("answer", "runs", "status", "says"),
    [
        (REJECT, [], "error", "not today"),
        ({"type": "reject"}, [], "error", "rejected"),
        ({"type": "respond", "message": "ask Ann"}, [], "success", "ask Ann"),
        (
            {
                "type": "edit",
                "edited_action": {"name": "refund", "args": {"order": "A", "amount": 9}},
            },
            ["refund A 9"],
            "success",
            '"amount": 9',
        ),
    ],
    ids=["reject", "reject-silently", "respond", "edit"],
)
def test_other_answers(answer: dict[str, Any], runs: list[str], status: str, says: str) -> None:
    """A person may reject, answer instead of the tool, or change the arguments."""
    scene = stage(by_amount)
    run = guarded(scene, REFUNDS, LARGE)
    run("Refund A.")

    result = results(run.answer(answer)["messages"])["call0"]

    assert ran == runs
    assert result.status == status
    assert says in result.text
    assert len(scene.transport.asked) == 1


def test_an_answer_that_is_none_can_be_given_again() -> None:
    """Nothing is saved of it."""
    run = guarded(stage(by_amount), REFUNDS, LARGE)
    run("Refund A.")

    other = {"name": "look_up", "args": {"order": "A"}}
    for answer in ({"type": "maybe"}, {"type": "edit", "edited_action": other}):
        with pytest.raises(ValidationError):
            run.answer(answer)
    run.answer(APPROVE)

    assert ran == ["refund A 500"]


@both
def test_resumed_by_another_process(use_async: bool) -> None:
    """The decision is in the graph's state, so nobody who resumes the run asks again."""
    saver = InMemorySaver()
    guarded(stage(by_amount), REFUNDS, LARGE, saver=saver)("Refund A.")
    other = stage(by_amount)
    run = guarded(other, REFUNDS, LARGE[1:], saver=saver, use_async=use_async)

    messages = run.answer(APPROVE)["messages"]

    assert ran == ["refund A 500"]
    assert messages[-1].text == "done"
    assert (other.transport.asked, other.audit.records) == ([], [])


def test_the_receipt_is_written_first() -> None:
    """While the run waits, the decision is in the state already; the caller never sees it."""
    scene = stage(by_amount)
    run = guarded(scene, REFUNDS, LARGE)

    waiting = run("Refund A.")

    state = run.agent.get_state(run.config)
    held = state.values["decision_guard"]["decision_guard"]["calls"]["call0"]
    assert scene.audit.records[0].decision.id in held["decision"]
    assert "decision_guard" not in waiting
    assert len(str(state.values["decision_guard"])) < 2000


def test_the_event_of_a_resumed_run_is_a_replay() -> None:
    """It names the same decision and what the person said."""
    run = guarded(stage(by_amount), REFUNDS, LARGE)
    (decided,) = run.events("Refund A.")
    (pending,) = run.agent.get_state(run.config).interrupts

    (replayed,) = run.events(Command(resume={pending.id: {"decisions": [APPROVE]}}))

    assert (decided["replayed"], decided["answer"]) == (False, None)
    assert (replayed["replayed"], replayed["answer"]) == (True, "approve")
    assert replayed["id"] == decided["id"]


def test_parallel_calls_wait_each_by_itself() -> None:
    """One may be approved and another rejected; a third that is fine runs at once."""
    scene = stage(by_amount)
    lines = [
        calls(
            ("refund", {"order": "A", "amount": 500}),
            ("refund", {"order": "B", "amount": 500}),
            ("refund", {"order": "C", "amount": 1}),
        ),
        AIMessage("done"),
    ]
    run = guarded(scene, REFUNDS, lines)

    assert len(run("Refund all.")["__interrupt__"]) == 2
    assert ran == ["refund C 1"]
    got = results(run.answer(APPROVE, REJECT)["messages"])

    assert ran == ["refund C 1", "refund A 500"]
    assert [got[f"call{n}"].status for n in range(3)] == ["success", "error", "success"]
    assert len(scene.transport.asked) == 3


@tool
def ask_user(question: str) -> str:
    """Ask the user."""
    answer: str = interrupt({"question": question})
    ran.append(f"ask_user {answer}")
    return answer


def test_a_tool_s_own_interrupt_passes_through() -> None:
    """First the guard's review, then the tool's question; the engine is asked once."""
    scene = stage(lambda rule, asked: 0.6)
    policy = REFUNDS.model_copy(
        update={"rules": (REFUNDS.rules[0].model_copy(update={"tools": ("*",)}),)}
    )
    lines = [calls(("ask_user", {"question": "Sure?"})), AIMessage("done")]
    run = guarded(scene, policy, lines, tools=[ask_user])

    run("Ask.")
    (question,) = run.answer(APPROVE)["__interrupt__"]
    messages = run(Command(resume={question.id: "yes"}))["messages"]

    assert question.value == {"question": "Sure?"}
    assert ran == ["ask_user yes"]
    assert results(messages)["call0"].text == "yes"
    assert len(scene.transport.asked) == 1


@both
@pytest.mark.parametrize("answer", [APPROVE, REJECT], ids=["approve", "reject"])
def test_input_under_review(answer: dict[str, Any], use_async: bool) -> None:
    """The model is called only once a person approves of what it is called with."""
    scene = stage(by_last)
    run = guarded(scene, TALK, [AIMessage("hello")], on=("input",), use_async=use_async)

    (pending,) = run("HEY you")["__interrupt__"]
    messages = run.answer(answer)["messages"]

    assert pending.value["action_requests"][0]["args"] == {"text": "HEY you"}
    assert (messages[-1].text == "hello") is (answer is APPROVE)
    assert len(messages) == 2
    assert len(scene.transport.asked) == 1


@both
@pytest.mark.parametrize("answer", [APPROVE, REJECT], ids=["approve", "reject"])
def test_output_under_review(answer: dict[str, Any], use_async: bool) -> None:
    """The last word stands once a person approves of it, else another takes its place."""
    scene = stage(by_last)
    run = guarded(scene, TALK, [AIMessage("HEY")], on=("output",), use_async=use_async)

    run("Hello")
    messages = run.answer(answer)["messages"]

    assert (messages[-1].text == "HEY") is (answer is APPROVE)
    assert len(messages) == 2
    assert len(scene.transport.asked) == 1


def test_review_may_be_a_block() -> None:
    """Where there is nobody to ask."""
    run = guarded(stage(by_amount), REFUNDS, LARGE, review="block")

    assert results(run("Refund A.")["messages"])["call0"].status == "error"
    assert ran == []


@both
def test_a_tool_node_resumes_by_the_engine_s_receipt(use_async: bool) -> None:
    """Where no state holds the decision, its key does: the other side replays it."""
    scene = stage(by_amount)
    guard = DecisionMiddleware(REFUNDS, decisions=scene.client)
    node = ToolNode(
        [refund, look_up],
        wrap_tool_call=guard.wrap_tool_call,
        awrap_tool_call=guard.awrap_tool_call,
    )
    graph = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    run = Run(graph.compile(checkpointer=InMemorySaver()), use_async=use_async)

    run({"messages": [LARGE[0]]})
    run.answer(APPROVE)

    assert ran == ["refund A 500"]
    assert len(scene.transport.asked) == scene.transport.replays == 1
    assert [r.decision.replayed for r in scene.audit.records] == [False, True]
    assert len({r.decision.id for r in scene.audit.records}) == 1


def test_what_a_broken_run_left_behind_is_forgotten() -> None:
    """A review that nobody answered does not hold up the next turn."""
    scene = stage(by_last)
    run = guarded(scene, TALK, [AIMessage("hello")], on=("input",))
    run("HEY you")

    messages = run("Never mind.")["messages"]

    assert messages[-1].text == "hello"
