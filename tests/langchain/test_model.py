"""Which session a decision model finds, and what it does with what it is asked about."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.decisions import Noul as TheirNoul
from langchain_core.exceptions import (
    ContextOverflowError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelTimeoutError,
)
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import SecretStr

from flide_agent import (
    EngineUnavailable,
    InvalidInput,
    MissingExtra,
    Noul,
    SessionConflict,
    TimedOut,
    TooLarge,
)
from flide_agent.history import messages_to_history
from langchain_flide import SessionDecisionModel
from langchain_flide.sessions import agent_of
from langchain_flide.states import plain, read_state
from tests.langchain.support import calls, stage

ASKED: Any = {"ok": TheirNoul(instructions="Is it?")}
HELLO = [HumanMessage("Hello"), AIMessage("Hi")]


def thread(name: Any, **more: Any) -> Any:
    """The configuration of a run in a thread."""
    return {"configurable": {"thread_id": name, **more}}


def test_a_thread_is_a_session() -> None:
    """What was sent in a thread is not sent again; the call after it is never history."""
    scene = stage()
    model = SessionDecisionModel(client=scene.client)
    call = {"name": "f", "args": {"x": 1}, "id": "random"}
    state: Any = {"messages": HELLO[:1], "tool_call": call}
    model.invoke({"state": state, "questions": ASKED}, thread("a"))
    model.invoke({"state": HELLO, "questions": ASKED}, thread("a"))
    asyncio.run(model.ainvoke({"state": HELLO, "questions": ASKED}, thread("b")))

    first, second, third = scene.transport.asked
    assert [a.session for a in (first, second, third)] == ["a", "a", "b"]
    assert [a.sent for a in (first, second, third)] == [1, 1, 2]
    assert first.local == '{"tool_call": {"name": "f", "args": {"x": 1}}}\n'
    assert second.turns == third.turns == [t.text for t in messages_to_history(HELLO)]
    assert first.request.history == "full"


def test_without_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    """It is answered all the same, with one note for those who debug."""
    scene = stage()
    model = SessionDecisionModel(client=scene.client)
    with caplog.at_level(logging.DEBUG, "langchain_flide"):
        for _ in range(3):
            response: Any = model.invoke({"state": HELLO, "questions": ASKED})

    assert [a.session for a in scene.transport.asked] == [None] * 3
    assert scene.transport.asked[0].text == "".join(t.text for t in messages_to_history(HELLO))
    assert response.x_session is None
    assert len(caplog.records) == 1
    assert "thread_id" in caplog.text


def test_settings_say_whose_session_it_is() -> None:
    """The key and the tenant may come from the configuration; never from what is judged."""
    scene = stage()
    model = SessionDecisionModel(
        client=scene.client,
        session_key=lambda config: config["configurable"].get("case"),
        tenant=lambda config: config["configurable"].get("org"),
    )
    request: Any = {"state": HELLO, "questions": ASKED}
    model.invoke(request, thread("t", case="c", org="o"))
    model.invoke(request, thread("t", org="o"))
    SessionDecisionModel(client=scene.client, tenant="fixed").invoke(request, thread("t"))

    assert [(a.session, a.tenant) for a in scene.transport.asked] == [
        ("c", "o"),
        (None, "o"),
        ("t", "fixed"),
    ]


def test_errors_are_of_both_families() -> None:
    """Code that catches LangChain's errors, or ours, catches these."""
    scene = stage()
    model = SessionDecisionModel(client=scene.client)
    pairs: list[tuple[type[Exception], type[Exception]]] = [
        (TooLarge, ContextOverflowError),
        (InvalidInput, ModelInvalidRequestError),
        (TimedOut, ModelTimeoutError),
        (EngineUnavailable, ModelConnectionError),
    ]
    for ours, theirs in pairs:
        scene.transport.fault = ours("it went wrong")
        for kind in (ours, theirs):
            with pytest.raises(kind, match="it went wrong"):
                model.invoke({"state": HELLO, "questions": ASKED}, thread("a"))
    scene.transport.fault = SessionConflict("another kind", "head")
    with pytest.raises(SessionConflict):
        model.invoke({"state": HELLO, "questions": ASKED}, thread("a"))


def test_after_an_error_the_session_goes_on() -> None:
    """What was not received is sent again."""
    scene = stage()
    model = SessionDecisionModel(client=scene.client)
    request: Any = {"state": HELLO, "questions": ASKED}
    scene.transport.fault = EngineUnavailable("gone")
    with pytest.raises(EngineUnavailable):
        model.invoke(request, thread("a"))
    scene.transport.fault = None

    model.invoke(request, thread("a"))
    assert scene.transport.asked[-1].sent == 2


def test_our_questions_may_be_looser() -> None:
    """LangChain's require instructions; ours may describe the outcomes only."""
    scene = stage(lambda question, asked: 0.25)
    model = SessionDecisionModel(client=scene.client)
    ask: Any = {"ok": Noul(criteria={"true": "It is fine."})}

    assert model.invoke({"state": "x", "questions": ask}).nouls["ok"].noul == 0.25


def test_media_in_questions_are_refused() -> None:
    """Nothing could be read of them."""
    image = {"type": "image", "url": "https://example.org/a.png"}
    ask: Any = {"ok": TheirNoul(instructions={"like": image})}

    with pytest.raises(InvalidInput, match="describe it in words"):
        SessionDecisionModel(client=stage().client).invoke({"state": "x", "questions": ask})


def test_somebody_must_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a client nor an address is an error when it is made; so is a wrong name."""
    for name in ("FLIDE_BASE_URL", "TYPESAFE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="FLIDE_BASE_URL"):
        SessionDecisionModel()
    with pytest.raises(ValueError, match="histroy"):
        SessionDecisionModel(client=stage().client, histroy="exact")  # type: ignore[call-arg]


def test_a_server_is_enough() -> None:
    """Its key shows nowhere."""
    model = SessionDecisionModel(base_url="http://localhost:8000", api_key=SecretStr("s3cret"))

    assert model.model == "jev-latest"
    assert "s3cret" not in f"{model!r} {model.model_dump_json()}"
    model.sessions.client.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


@given(json_values)
def test_plain_values_stay_as_they_are(value: Any) -> None:
    """JSON without messages, media or calls is JSON already."""
    assert plain(value) == value


@given(st.lists(json_values), st.booleans())
def test_only_messages_are_history(values: list[Any], mapped: bool) -> None:
    """A list with anything else in it is a state like any other."""
    state: Any = [HELLO[0], 1, *values]
    parts = read_state({"messages": state} if mapped else state)

    assert parts.history is None


def test_what_is_read_of_messages_inside_a_state() -> None:
    """They are in canonical form, whichever form they came in."""
    read = plain({"said": HELLO, "call": calls(("f", {"x": 1})).tool_calls[0], "one": HELLO[0]})

    assert read == {
        "said": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
        "call": {"name": "f", "args": {"x": 1}},
        "one": {"role": "user", "content": "Hello"},
    }


@pytest.mark.parametrize(
    ("namespace", "name", "agent"),
    [
        ("", None, ""),
        ("model:0b1c", None, ""),
        ("tools:0b1c|model:22f0", None, "tools"),
        ("tools:0b1c|1|model:22f0", "critic", "tools|critic"),
        ("team:1|planner:2|tools:3", None, "team|planner"),
    ],
)
def test_agents_have_names_that_last(namespace: str, name: str | None, agent: str) -> None:
    """The fresh uuids of every step and call are not in them."""
    config: Any = {"configurable": {"checkpoint_ns": namespace}, "metadata": {}}
    if name:
        config["metadata"]["lc_agent_name"] = name

    assert agent_of(config) == agent


def test_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without langchain there is a decision model, and a hint where more is needed."""
    import sys

    import langchain_flide

    for name in [n for n in sys.modules if n.startswith(("langchain.", "langchain_flide."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.setitem(sys.modules, "langgraph", None)

    assert langchain_flide.SessionDecisionModel(client=stage().client)
    with pytest.raises(MissingExtra, match=r"flide-agent\[langchain\]"):
        _ = langchain_flide.DecisionMiddleware
