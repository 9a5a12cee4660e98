"""What is refused did not happen, what happened is not lost, and nobody slips past a guard."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import (
    Choice,
    EngineUnavailable,
    InvalidInput,
    KeyConflict,
    Noul,
    Policy,
    Rule,
    SessionNotFound,
    TimedOut,
    TooLarge,
)
from flide_agent.history import messages_to_history, state_text
from flide_agent.runtime.futures import translate
from flide_agent.since import judge_new
from tests.agent.sessions.conftest import numbers

if TYPE_CHECKING:
    from flide_agent.client import Session
    from tests.agent.sessions.conftest import Stage

ASKED: dict[str, Any] = {"done": Noul(instructions="Is it done?")}
MANY = {"pick": Choice(criteria={f"o{n}": None for n in range(40)})}
ALWAYS = Rule("always", ASKED["done"], block=0.0, tools=["refund_*"])
GUARD = Policy(rules=[ALWAYS], timeout=60)


@pytest.fixture
def session(stage: Stage) -> Session:
    """A session of one turn."""
    session = stage.client.session("thread")
    session.append("a ")
    return session


def test_a_question_is_no_rewind(session: Session, stage: Stage) -> None:
    """Another object asks where it stands; the first one's newest turn stays the newest."""
    other = stage.client.session("thread")
    other.ask(ASKED)
    session.append("b ")
    other.ask(ASKED)
    session.append("c ")

    assert (session.text, other.text) == ("a b c ", "a ")


def test_an_opened_session_is_asked_as_it_is(stage: Stage) -> None:
    """Its system prompt alone is not what it holds."""
    stage.client.session("begun", system="Be kind.").append("a ")
    again = stage.client.session("begun", system="Be kind.")
    again.ask(ASKED)

    assert again.text.endswith("a ")
    assert stage.client.session("new", system="Be kind.").ask(ASKED).session.tokens > 0


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (KeyConflict, lambda s: s.ask(ASKED, messages=["a ", "b "], key="k")),
        (SessionNotFound, lambda s: s.ask(ASKED, messages=["a ", "b "], since="f" * 40)),
        (InvalidInput, lambda s: s.ask(MANY, messages=["a ", "b "])),
        (TooLarge, lambda s: s.ask(ASKED, messages=["a ", "b " * 9000])),
        (InvalidInput, lambda s: s.ask(ASKED, messages=["a ", "b "], state=float("nan"))),
        (InvalidInput, lambda s: s.ask(ASKED, messages=["a ", "b "], since=3)),
    ],
    ids=["key", "since", "question", "size", "state", "type"],
)
def test_what_is_refused_did_not_happen(session: Session, error: type, refused: Any) -> None:
    """On either side."""
    session.ask(ASKED, key="k")
    with pytest.raises(error):
        refused(session)
    session.append("c ")

    assert session.text == "a c "


def test_a_watch_that_cannot_be_asked_is_refused(session: Session) -> None:
    """There and then, and appending goes on."""
    with pytest.raises(InvalidInput):
        session.watch(MANY)
    session.append("b ")

    assert session.text == "a b "


def test_a_watch_of_a_lost_session_can_be_stopped(session: Session, stage: Stage) -> None:
    """And the session be closed."""
    stop = session.watch(ASKED)
    stage.client._transport.runtime.drop("", "thread")  # type: ignore[attr-defined]
    stop()
    session.close()


@pytest.mark.parametrize(
    "state",
    [
        {"tool": "refund_x"},
        {"name": "refund_x", "args": {}},
        {"tool": None, "name": "refund_x"},
        {"id": "c1", "type": "function", "function": {"name": "refund_x", "arguments": "{}"}},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "refund_x", "args": {}}]},
        [{"name": "refund_x", "args": {}}],
    ],
)
def test_however_a_call_is_written_it_is_judged(session: Session, state: Any) -> None:
    """A rule for its tool is asked."""
    assert session.decide(GUARD, state=state).action == "block"


@pytest.mark.parametrize(
    "state",
    [
        {"tool": "a", "name": "refund_x"},
        {"function": {}},
        [{"name": "a"}, {"name": "refund_x"}],
        {"tool": 7},
    ],
)
def test_a_call_that_cannot_be_told_is_no_allow(session: Session, state: Any) -> None:
    """Whoever writes it so must say whose it is."""
    with pytest.raises(InvalidInput, match="tool="):
        session.decide(GUARD, state=state)
    assert session.decide(GUARD, state=state, tool="refund_x").action == "block"


def test_a_state_loses_nothing(session: Session) -> None:
    """A call with the fields of a message is judged with all that it has."""
    call = {"type": "function", "name": "write_file", "path": "/etc/passwd", "content": "x"}

    assert "/etc/passwd" in state_text(call)
    assert state_text({"tool": "create_user", "role": "admin"})
    assert state_text("as it is") == "as it is"
    message = messages_to_history([{"role": "user", "content": "x"}])[0].text
    assert state_text({"role": "user", "content": "x"}) != message


def test_a_failed_question_judged_nothing(session: Session, stage: Stage) -> None:
    """What came before it is still new to the next one."""
    session.ask(ASKED)
    session.append("EVIL ")
    with contextlib.suppress(TimedOut):
        session.ask(ASKED, since="last", timeout=1e-9)
    answers = session.ask(ASKED, since="last")
    new = {name: judge_new(question, "EVIL ") for name, question in ASKED.items()}

    assert numbers(answers) == pytest.approx(stage.stateless("a EVIL ", new), abs=1e-9, rel=0)


def test_whatever_breaks_is_an_unavailable_engine() -> None:
    """A decision then follows `on_error`, and nothing raw reaches its caller."""
    error = translate(RuntimeError("broken"))

    assert isinstance(error, EngineUnavailable)
    assert "broken" in str(error)


def test_a_fork_is_no_way_out_of_a_band(stage: Stage) -> None:
    """What was blocked stays blocked there."""
    question = {"q": ASKED["done"]}
    texts = sorted(["a", "b b"], key=lambda text: stage.stateless(text, question)[0])
    low, high = (stage.stateless(text, question)[0] for text in texts)
    rule = Rule("q", ASKED["done"], block=(low + high) / 2, release=low / 2)
    policy = Policy(rules=[rule], timeout=60)
    session = stage.client.session()
    assert session.decide(policy, messages=[texts[1]]).action == "block"
    fork = session.fork()

    assert fork.decide(policy, messages=[texts[0]]).action == "block"


def test_a_standing_answer_is_judged_with_the_bands_of_now(stage: Stage) -> None:
    """They may have moved since it was there."""
    question = {"q": ASKED["done"]}
    texts = sorted(["a", "b b"], key=lambda text: stage.stateless(text, question)[0])
    low, high = (stage.stateless(text, question)[0] for text in texts)
    rule = Rule("q", ASKED["done"], block=(low + high) / 2, release=low / 2)
    policy = Policy(rules=[rule], timeout=60)
    session = stage.client.session()
    session.watch(policy)
    head = session.sync([texts[0]]).head
    assert session.decide(policy).action == "allow"
    assert session.decide(policy, messages=[texts[1]]).action == "block"
    session.rewind(head)

    assert session.decide(policy).action == "block"


def test_settings_that_cannot_be(stage: Stage) -> None:
    """One sentence, whichever it is."""
    for options in ({"ttl": 0}, {"ttl": float("nan")}, {"history": "bogus"}, {"agent": None}):
        with pytest.raises(InvalidInput):
            stage.client.session(**options).ask(ASKED)
