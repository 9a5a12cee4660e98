"""What LangChain and LangGraph do to a history between steps, and what a guard makes of it.

After every test all answers are compared with those on the same text read from nothing.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelFallbackMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Client
from flide_agent.history import messages_to_history
from langchain_flide import DecisionMiddleware, SessionDecisionModel
from tests.langchain.support import ScriptedChat, calls
from tests.langchain.watching import WATCH

if TYPE_CHECKING:
    from tests.langchain.watching import Watched

SYSTEM = "You keep the books."
THREAD: Any = {"configurable": {"thread_id": "t"}}


def expected(*messages: Any) -> list[str]:
    """The turns of a history without its system prompt."""
    return [turn.text for turn in messages_to_history(messages)]


@tool
def book(entry: str) -> str:
    """Write an entry."""
    return f"booked {entry}"


def agent(
    watched: Watched, lines: list[AIMessage], *before: Any, tools: Any = (book,), **options: Any
) -> Any:
    """An agent that is watched; the system prompt is known from the start."""
    chat = options.pop("chat", None) or ScriptedChat(lines=lines)
    guard = DecisionMiddleware(WATCH, decisions=Client(transport=watched), system=SYSTEM, **options)
    return create_agent(
        chat,
        tools=tools,
        middleware=[*before, guard],
        system_prompt=SYSTEM,
        checkpointer=InMemorySaver(),
    )


def say(text: str) -> dict[str, Any]:
    """What a user says."""
    return {"messages": [HumanMessage(text)]}


def booked(*entries: str) -> list[AIMessage]:
    """A call a step and a last word."""
    made = [calls(("book", {"entry": e}), first=n) for n, e in enumerate(entries)]
    return [*made, AIMessage("all booked")]


def test_a_normal_run_is_appended(watched: Watched) -> None:
    """Input, calls, results and last words: each step goes on from the one before."""
    run = agent(watched, [*booked("a", "b"), AIMessage("bye")])
    run.invoke(say("Book a and b."), THREAD)
    messages = run.invoke(say("Bye."), THREAD)["messages"]

    assert watched.reasons == ["new"] + ["appended"] * 5
    assert watched.turns()[1:] == expected(*messages)


def test_a_caller_that_sends_everything_again(watched: Watched) -> None:
    """Without a checkpointer, as maps with no ids: it is the same history by its content."""
    guard = DecisionMiddleware(WATCH, decisions=Client(transport=watched), on=("input",))
    run: Any = create_agent(
        ScriptedChat(lines=[AIMessage("one"), AIMessage("two")]), middleware=[guard]
    )
    history: list[Any] = [{"role": "user", "content": "Hello"}]
    run.invoke({"messages": history}, THREAD)
    history += [{"role": "assistant", "content": "one"}, {"role": "user", "content": "And?"}]
    run.invoke({"messages": history}, THREAD)

    assert watched.reasons == ["new", "appended"]
    assert len(watched.replies[1][1].request.messages) == 2


def test_an_edit_in_place_forks_there(watched: Watched) -> None:
    """The same id with other content is another history from that point on."""
    run = agent(watched, [AIMessage("one"), AIMessage("two")])
    first = run.invoke(say("My number is 5512."), THREAD)["messages"][0]
    redacted = HumanMessage("My number is [gone].", id=first.id)
    run.update_state(THREAD, {"messages": [redacted]})
    messages = run.invoke(say("And?"), THREAD)["messages"]

    assert watched.reasons == ["new", "appended", "edited", "appended"]
    assert watched.replies[2][2].session.diverged_at == 1
    assert watched.turns()[1:] == expected(*messages)


def test_redaction_by_middleware(watched: Watched) -> None:
    """What is judged before the model is called is what the agent's state then holds."""
    redact = PIIMiddleware("email", strategy="redact", apply_to_input=True)
    run = agent(watched, [AIMessage("noted")], redact)
    messages = run.invoke(say("I am ann@example.org."), THREAD)["messages"]

    assert "example" not in "".join(watched.turns())
    assert watched.turns()[1:] == expected(*messages)


def test_a_summary_begins_a_branch(watched: Watched) -> None:
    """All is removed, a summary and the last messages stay; the reason says so."""
    summary = SummarizationMiddleware(
        ScriptedChat(lines=[AIMessage("They booked a lot.")]),
        trigger=("messages", 6),
        keep=("messages", 2),
    )
    run = agent(watched, booked("a", "b", "c", "d"), summary)
    messages = run.invoke(say("Book them."), THREAD)["messages"]

    assert watched.reasons.count("summarised") == 1
    assert "They booked a lot." in watched.turns()[1]
    assert watched.turns()[1:] == expected(*messages)


class Trim(AgentMiddleware[Any, Any, Any]):
    """Keeps the last six messages."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [RemoveMessage(m.id) for m in state["messages"][:-6]]}


@pytest.mark.parametrize("history", ["exact", "full"])
def test_a_trimmed_history_is_a_window(watched: Watched, history: Any) -> None:
    """Behind the prompt its front is gone: it is judged so, or as the end of what is held."""
    decisions = SessionDecisionModel(client=Client(transport=watched), history=history)
    guard = DecisionMiddleware(WATCH, decisions=decisions, system=SYSTEM)
    entries = "abcdefg"
    run: Any = create_agent(
        ScriptedChat(lines=booked(*entries)),
        tools=[book],
        middleware=[Trim(), guard],
        checkpointer=InMemorySaver(),
    )
    run.invoke(say("Book them all."), THREAD)

    assert watched.reasons.count("windowed") >= 4
    assert "edited" not in watched.reasons
    turns = watched.turns()[1:]
    assert len(turns) == (2 + 2 * len(entries) if history == "full" else 7)
    assert ("Book them all." in turns[0]) is (history == "full")


def test_a_cleared_tool_result_clears_nothing_here(watched: Watched) -> None:
    """Only what the model is sent is edited; the guard reads the state."""
    edits = ContextEditingMiddleware(
        edits=[ClearToolUsesEdit(trigger=1, keep=0, placeholder="[cleared]")]
    )
    chat = ScriptedChat(lines=booked("a", "b"))
    run = agent(watched, [], edits, chat=chat)
    run.invoke(say("Book a and b."), THREAD)

    assert "[cleared]" in str(chat.heard[-1])
    assert "[cleared]" not in "".join(watched.turns())
    assert watched.reasons == ["new"] + ["appended"] * 3


def test_a_repaired_history_forks(watched: Watched) -> None:
    """A call that nobody answered gets a result in the middle of the history."""
    run = agent(watched, [AIMessage("fresh")], on=("output",))
    left = [HumanMessage("Book a."), calls(("book", {"entry": "a"}))]
    run.update_state(THREAD, {"messages": left}, as_node="model")
    messages = run.invoke(say("Never mind."), THREAD)["messages"]

    assert watched.turns()[1:] == expected(*messages)


def test_a_removed_message_forks(watched: Watched) -> None:
    """What follows it follows something else now."""
    run = agent(watched, [AIMessage("one"), AIMessage("two")])
    reply = run.invoke(say("Hello"), THREAD)["messages"][-1]
    run.update_state(THREAD, {"messages": [RemoveMessage(reply.id)]})
    messages = run.invoke(say("And?"), THREAD)["messages"]

    assert watched.reasons == ["new", "appended", "edited", "appended"]
    assert watched.turns()[1:] == expected(*messages)
    assert "one" not in "".join(watched.turns())


def test_results_in_any_order(watched: Watched) -> None:
    """Tools that run side by side end as they like; the history is in the order of the calls."""
    order = itertools.count()

    @tool
    async def slowly(entry: str) -> str:
        """Write an entry."""
        await asyncio.sleep(0.05 if next(order) == 0 else 0)
        return f"booked {entry}"

    lines = [calls(("slowly", {"entry": "a"}), ("slowly", {"entry": "b"})), AIMessage("done")]
    run = agent(watched, lines, tools=[slowly])
    messages = asyncio.run(run.ainvoke(say("Book both."), THREAD))["messages"]

    turned = [*messages[:2], messages[3], messages[2], *messages[4:]]
    assert watched.turns()[1:] == expected(*messages) == expected(*turned)


def test_time_travel_and_a_fork(watched: Watched) -> None:
    """From an earlier checkpoint another future begins, at the longest common beginning."""
    run = agent(watched, [AIMessage("one"), AIMessage("two"), AIMessage("three")])
    run.invoke(say("Hello"), THREAD)
    run.invoke(say("First way."), THREAD)
    earlier = next(s for s in run.get_state_history(THREAD) if len(s.values["messages"]) == 2)
    messages = run.invoke(say("Second way."), earlier.config)["messages"]

    assert watched.reasons == ["new"] + ["appended"] * 3 + ["edited", "appended"]
    assert watched.replies[4][2].session.diverged_at == 3
    assert watched.turns()[1:] == expected(*messages)
    assert [m.text for m in messages] == ["Hello", "one", "Second way.", "three"]


def test_agents_in_one_thread(watched: Watched) -> None:
    """Each has a branch, bands and questions of its own; the session is the thread's."""
    inner = agent(watched, booked("x", "y"))
    inner.checkpointer = None

    @tool
    def delegate(task: str) -> str:
        """Let another agent do it."""
        said: str = inner.invoke(say(task))["messages"][-1].text
        return said

    lines = [
        calls(("delegate", {"task": "Book x and y."})),
        calls(("book", {"entry": "z"}), first=1),
        AIMessage("done"),
    ]
    run = agent(watched, lines, tools=[delegate, book])
    messages = run.invoke(say("Book x, y and z."), THREAD)["messages"]

    assert {call.session for _, call, _ in watched.replies} == {"t"}
    assert {call.request.agent for _, call, _ in watched.replies} == {"", "tools"}
    assert sorted(set(watched.reasons)) == ["appended", "edited", "new"]
    assert watched.reasons.count("edited") == 1
    assert watched.turns()[1:] == expected(*messages)


def test_a_fallback_writes_blocks(watched: Watched) -> None:
    """Another provider's form of the same words is the same turn."""

    class Broken(ScriptedChat):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("overloaded")

    blocks: list[Any] = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "yes"}]
    fallback = ModelFallbackMiddleware(ScriptedChat(lines=[AIMessage(blocks)]))
    run = agent(watched, [], fallback, chat=Broken(lines=[]))
    run.invoke(say("Hello"), THREAD)

    assert watched.turns()[1:] == expected(HumanMessage("Hello"), AIMessage("yes"))


def test_a_changed_prompt_forks_at_the_start(watched: Watched) -> None:
    """It is the first turn; nothing that followed the old one is taken for the new one's."""
    saver = InMemorySaver()
    for prompt in ("Be brief.", "Be kind."):
        guard = DecisionMiddleware(WATCH, decisions=Client(transport=watched), on=("output",))
        run: Any = create_agent(
            ScriptedChat(lines=[AIMessage("ok")]),
            middleware=[guard],
            system_prompt=prompt,
            checkpointer=saver,
        )
        run.invoke(say("Hello"), THREAD)

    assert watched.reasons == ["new", "edited"]
    assert watched.replies[1][2].session.diverged_at == 0
    assert "Be kind." in watched.turns()[0]


def test_tenants_never_share_a_head(watched: Watched) -> None:
    """The same thread id of two tenants is two sessions."""
    for tenant in ("one", "other"):
        decisions = SessionDecisionModel(client=Client(transport=watched), tenant=tenant)
        guard = DecisionMiddleware(WATCH, decisions=decisions, on=("input",))
        run: Any = create_agent(ScriptedChat(lines=[AIMessage("ok")]), middleware=[guard])
        run.invoke(say("A long enough text to be kept, " * 10), THREAD)

    assert watched.reasons == ["new", "new"]
    assert [reply.session.reused_tokens for _, _, reply in watched.replies] == [0, 0]
