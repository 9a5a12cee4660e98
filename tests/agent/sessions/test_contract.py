"""The contract: a session's answers are those of `system_one` on its text, whatever was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from flide_agent import Choice, Noul, Score
from flide_agent.client.path import Path
from flide_agent.history import messages_to_history, state_text
from flide_agent.since import judge_new
from tests.agent.sessions.conftest import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_agent.client import Session
    from tests.agent.sessions.conftest import Stage

QUESTIONS: dict[str, Any] = {
    "done": Noul(instructions="Is it done?"),
    "next": Choice(criteria={"go": None, "stop": "at once"}),
    "risk": Score(instructions="How bad?", criteria=["not", "quite"]),
}

# Long enough for a few to pass a block of 64 tokens, with what may merge over their borders.
texts = st.text(st.sampled_from("ab yesno.\n:é\u0301가<|>"), min_size=1, max_size=90)
contents = st.one_of(texts, st.just("yes " * 40))
messages = st.one_of(
    texts,
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant"]),
        contents,
    ),
    st.builds(lambda text: {"event": text}, texts),
)


class SessionMachine(RuleBasedStateMachine):
    """Sessions, and the texts that they should hold."""

    stage: Stage
    sessions: Bundle[Session] = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[Session, list[Any]] = {}
        self.count = 0

    @initialize(target=sessions)
    def begin(self) -> Session:
        session = self.stage.client.session(tenant="one")
        self.held[session] = []
        return session

    @rule(session=sessions, new=st.lists(messages, max_size=3))
    def append(self, session: Session, new: list[Any]) -> None:
        self.append_(session, new)

    def append_(self, session: Session, new: list[Any]) -> None:
        session.append(*new)
        self.held[session] += new
        self.check_text(session, new)

    @rule(session=sessions, data=st.data(), new=st.lists(messages, max_size=2))
    def sync(self, session: Session, data: st.DataObject, new: list[Any]) -> None:
        """What frameworks do: nothing, a window, a deletion, a replacement."""
        held = self.held[session]
        first = data.draw(st.integers(0, len(held)))
        last = data.draw(st.integers(first, len(held)))
        self.held[session] = (
            data.draw(
                st.sampled_from([held, held[first:], held[:first], held[:first] + held[last:]])
            )
            + new
        )
        session.sync(self.held[session])
        self.check_text(session)

    @rule(
        session=sessions,
        asked=st.sets(st.sampled_from(sorted(QUESTIONS)), min_size=1),
        state=st.none() | messages,
    )
    def ask(self, session: Session, asked: set[str], state: Any) -> None:
        questions = {name: QUESTIONS[name] for name in asked}
        answers = session.ask(questions, state=state)
        self.check(session, numbers(answers), questions, state)

    @rule(session=sessions, new=st.lists(messages, max_size=2))
    def ask_with_history(self, session: Session, new: list[Any]) -> None:
        self.held[session] = self.held[session] + new
        answers = session.ask(QUESTIONS, messages=self.held[session])
        self.check(session, numbers(answers), QUESTIONS, None)

    @rule(session=sessions, new=st.lists(messages, min_size=1, max_size=2), state=st.none() | texts)
    def ask_about_what_is_new(self, session: Session, new: list[Any], state: Any) -> None:
        session.ask(QUESTIONS)
        before = turns_of(session)
        session.append(*new)
        self.held[session] += new
        self.check_text(session, new)
        answers = session.ask(QUESTIONS, since="last", state=state)
        after = turns_of(session)
        common = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before)
        )
        words = "".join(after[common:]) + ("" if state is None else state_text(state))
        questions = {name: judge_new(q, words) for name, q in QUESTIONS.items()}
        self.check(session, numbers(answers), questions, state)

    @rule(target=sessions, session=sessions)
    def fork(self, session: Session) -> Session:
        other = session.fork()
        self.held[other] = list(self.held[session])
        return other

    @rule(session=sessions, data=st.data())
    def rewind(self, session: Session, data: st.DataObject) -> None:
        held = self.held[session]
        count = data.draw(st.integers(0, len(held)))
        self.held[session] = held[:count]
        session.rewind(Path().plus(messages_to_history(held[:count])).head)
        self.check_text(session)

    @rule(target=sessions, session=sessions, new=messages)
    def another_writer(self, session: Session, new: Any) -> Session:
        """It goes on from the session's newest history, and the first one does not know."""
        other = self.stage.client.session(session.id, tenant="one")
        before = session_text(self.stage, session)
        other.append(new)
        assert other.text == before + text_of([new])
        self.held[other] = turns_of(other)
        return other

    @rule(session=sessions)
    def expire(self, session: Session) -> None:
        runtime(self.stage).drop("one", session.id)

    @rule()
    def forget_checkpoints(self) -> None:
        self.stage.engine.forget()

    def check_text(self, session: Session, new: Sequence[Any] = ()) -> None:
        """An append may have followed what others appended: then the text ends with ours."""
        ours = text_of(self.held[session])
        if session.text != ours:
            assert self.shared(session)
            assert session.text.endswith(text_of(list(new)))
            self.held[session] = turns_of(session)

    def check(self, session: Session, got: list[float], questions: Any, state: Any) -> None:
        self.check_text(session)
        whole = session.text + ("" if state is None else state_text(state))
        assert got == pytest.approx(self.stage.stateless(whole, questions), abs=1e-9, rel=0)

    def shared(self, session: Session) -> bool:
        return sum(other.id == session.id for other in self.held) > 1


def turns_of(session: Session) -> list[Any]:
    """The texts of a session's turns."""
    return [turn.text for turn in session._verbs.path.turns]


def text_of(given: list[Any]) -> str:
    """The canonical text of messages."""
    return "".join(turn.text for turn in messages_to_history(given))


def runtime(stage: Stage) -> Any:
    """The serving side behind a stage's client."""
    return stage.client._transport.runtime  # type: ignore[attr-defined]


def session_text(stage: Stage, session: Session) -> str:
    """The newest history that is held under a session's key."""
    from flide_agent import SessionNotFound

    try:
        return "".join(runtime(stage).describe("one", session.id, turns=True).turns)
    except SessionNotFound:
        return ""


def test_session_equals_stateless(stage: Stage) -> None:
    """Any sequence of what sessions can do, and what can befall them."""

    class Machine(SessionMachine):
        pass

    Machine.stage = stage
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
