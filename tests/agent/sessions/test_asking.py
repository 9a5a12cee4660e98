"""What is asked of sessions besides their history: keys, what is new, decisions, standing ones."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import (
    AsyncClient,
    Choice,
    EngineUnavailable,
    InvalidInput,
    KeyConflict,
    Noul,
    Policy,
    Rule,
    Score,
    SessionNotFound,
    TimedOut,
    TooLarge,
)
from flide_agent.policy import MemorySink
from flide_agent.since import judge_new
from tests.agent.sessions.conftest import numbers

if TYPE_CHECKING:
    from flide_agent.client import Session
    from tests.agent.sessions.conftest import Stage

ASKED: dict[str, Any] = {
    "done": Noul(instructions="Is it done?"),
    "next": Choice(criteria={"go": None, "stop": "at once"}),
    "risk": Score(instructions="How bad?", criteria=["not", "quite"]),
}
CALL = {"tool": "refund_order", "arguments": {"order": "48213"}}
ALWAYS = Policy(
    rules=[Rule("always", Noul(instructions="Is it so?"), block=0.0, tools=["refund_*"])],
    timeout=60,
)


@pytest.fixture
def session(stage: Stage) -> Session:
    """A session with something said."""
    session = stage.client.session("thread")
    session.append({"role": "user", "content": "Cancel my order, please. " * 8})
    return session


class TestKeys:
    def test_a_repeat_gets_the_stored_reply(self, session: Session, stage: Stage) -> None:
        """Nothing is computed, and the decision says that it is a replay."""
        first = session.decide(ALWAYS, state=CALL, key="k")
        stage.engine.forget()
        again = session.decide(ALWAYS, state=CALL, key="k")

        assert (first.replayed, again.replayed) == (False, True)
        assert (again.id, again.action) == (first.id, "block")

    @pytest.mark.parametrize(
        "change",
        [
            lambda s: s.ask({"done": ASKED["done"]}, state=CALL, key="k"),
            lambda s: s.ask(ASKED, state={**CALL, "tool": "other"}, key="k"),
            lambda s: s.ask(ASKED, state=CALL, key="k", since="last"),
            lambda s: s.decide(ALWAYS, state=CALL, key="k"),
            lambda s: s.ask(ASKED, messages=["another history"], state=CALL, key="k"),
        ],
        ids=["questions", "state", "since", "policy", "head"],
    )
    def test_anything_else_is_a_conflict(self, session: Session, change: Any) -> None:
        """A key stands for one question about one history."""
        session.ask(ASKED, state=CALL, key="k")
        with pytest.raises(KeyConflict, match="'k'"):
            change(session)

    def test_keys_are_the_sessions_own(self, session: Session, stage: Stage) -> None:
        """Another session, or tenant, may use the same one."""
        session.ask(ASKED, key="k")
        for tenant in (None, "other"):
            other = stage.client.session(tenant=tenant)
            other.append("something else")
            other.ask(ASKED, key="k")

    def test_a_failed_reply_is_not_stored(self, session: Session) -> None:
        """What failed was no decision, so its repeat is asked."""
        with pytest.raises(TooLarge):
            session.ask(ASKED, state="a " * 9000, key="k")
        session.ask(ASKED, state="a", key="k")


class TestSince:
    def test_words_name_what_is_new(self, session: Session, stage: Stage) -> None:
        """The answer is that of the question in those words on the whole text."""
        session.ask(ASKED)
        session.append("It was paid twice.")
        answers = session.ask(ASKED, since="last", state="Pay?")
        questions = {k: judge_new(q, "It was paid twice.Pay?") for k, q in ASKED.items()}
        expected = stage.stateless(session.text + "Pay?", questions)

        assert numbers(answers) == pytest.approx(expected, abs=1e-9, rel=0)

    def test_a_head_says_since_when(self, session: Session, stage: Stage) -> None:
        """Any head of the session will do."""
        head = session.head
        session.append("one ", "two ")
        session.ask(ASKED)
        answers = session.ask(ASKED, since=head)
        questions = {k: judge_new(q, "one two ") for k, q in ASKED.items()}

        assert numbers(answers) == pytest.approx(
            stage.stateless(session.text, questions), abs=1e-9, rel=0
        )
        with pytest.raises(SessionNotFound):
            session.ask(ASKED, since="f" * 40)

    def test_agents_have_their_own_last(self, stage: Stage) -> None:
        """What one agent asked is not the other's last question."""
        mine = stage.client.session("shared", agent="a")
        mine.append("start. ")
        mine.ask(ASKED)
        mine.append("more. ")
        other = stage.client.session("shared", agent="b")
        first = other.ask(ASKED, since="last")

        assert numbers(first) == pytest.approx(
            stage.stateless("start. more. ", ASKED), abs=1e-9, rel=0
        )

    def test_the_words(self) -> None:
        """They quote where the new part begins, and say so when there is none."""
        question = Noul(instructions="Is it done?")
        new = judge_new(question, 'He said "now".\n' + "x" * 200).instructions
        nothing = judge_new(question, " \n").instructions

        assert isinstance(new, str)
        assert new.endswith("Is it done?")
        assert '"He said \\"now\\". xxx' in new
        assert len(new) < 300
        assert "Nothing was added" in str(nothing)
        assert judge_new(Noul(instructions={"a": 1}), "b").instructions != new


class TestDecisions:
    def test_tools_choose_the_rules(self, session: Session) -> None:
        """A rule about other tools is not asked; then there is nothing to refuse."""
        assert session.decide(ALWAYS, state=CALL).action == "block"
        allowed = session.decide(ALWAYS, state={"tool": "read"})

        assert allowed
        assert session.guard(ALWAYS)(state=CALL, tool="read")

    def test_bands_hold_until_released(self, stage: Stage) -> None:
        """They are kept on the serving side, for each agent."""
        question = {"q": ASKED["done"]}
        texts = sorted(["a", "b b"], key=lambda text: stage.stateless(text, question)[0])
        low, high = (stage.stateless(text, question)[0] for text in texts)
        rule = Rule("q", ASKED["done"], review=(low + high) / 2, release=low / 2)
        policy = Policy(rules=[rule], timeout=60)

        def decisions(agent: str, order: list[str]) -> list[str]:
            session = stage.client.session("bands", agent=agent)
            return [session.decide(policy, messages=[text]).action for text in order]

        assert decisions("a", texts[::-1]) == ["review", "review"]
        assert decisions("b", texts) == ["allow", "review"]

    def test_an_engine_that_cannot_answer(self, session: Session, stage: Stage) -> None:
        """The policy says what happens then, the decision says that it did, the audit records."""
        sink = MemorySink()
        session._audit = sink
        session._route = session._route._replace(transport=Broken())
        for action in ("block", "review", "allow"):
            policy = Policy(rules=ALWAYS.rules, on_error=action, timeout=1)
            decision = session.decide(policy, state=CALL)

            assert (decision.action, decision.degraded) == (action, True)
        assert [record.decision.action for record in sink.records] == ["block", "review", "allow"]

    def test_every_decision_is_audited(self, session: Session) -> None:
        """With what it cost, and without text."""
        sink = MemorySink()
        session._audit = sink
        session.decide(ALWAYS, state=CALL)
        session.decide(ALWAYS, state={"tool": "read"})
        blocked, allowed = (record.fields() for record in sink.records)

        assert (blocked["action"], allowed["action"]) == ("block", "allow")
        assert blocked["session"] == session.id
        assert blocked["new_tokens"] > 0
        assert "48213" not in str(blocked)

    def test_a_wrong_policy_is_not_hidden(self, session: Session) -> None:
        """An unreadable call raises, whatever `on_error` says."""
        policy = Policy(rules=ALWAYS.rules, on_error="allow")
        with pytest.raises(InvalidInput):
            session.decide(policy, state={"tool": "refund_x", "n": float("nan")})


class TestStanding:
    def test_asking_is_a_look_up(self, session: Session, stage: Stage) -> None:
        """What was watched is answered without computing, as it would be otherwise."""
        session.watch(ASKED)
        session.append("It was paid twice.")
        answers = session.ask(ASKED)

        assert (answers.session.new_tokens, answers.session.source) == (0, "standing")
        assert numbers(answers) == pytest.approx(
            stage.stateless(session.text, ASKED), abs=1e-9, rel=0
        )

    def test_a_callback_hears_decisions(self, session: Session) -> None:
        """Until it is stopped."""
        heard: list[Any] = []
        told = threading.Semaphore(0)
        policy = Policy(rules=[Rule("done", ASKED["done"], block=0.0)], timeout=60)

        def hear(decision: Any) -> None:
            heard.append(decision)
            told.release()

        stop = session.watch(policy, hear)
        session.append("one")
        session.append("two")
        assert told.acquire(timeout=30)
        assert told.acquire(timeout=30)
        stop()
        session.append("three")
        session.ask(ASKED)

        assert [decision.action for decision in heard] == ["block", "block"]

    def test_a_callback_that_raises_stops_nothing(
        self, session: Session, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged."""
        told = threading.Event()

        def hear(answers: Any) -> None:
            told.set()
            raise RuntimeError("deaf")

        session.watch(ASKED, hear)
        session.append("one")
        assert told.wait(30)
        session.append("two")

        assert session.ask(ASKED).session.source == "standing"


class TestAsync:
    def test_twins_give_the_same(self, stage: Stage) -> None:
        """Every name of a session, awaited."""

        async def use() -> list[float]:
            client = AsyncClient(transport=stage.client._transport)
            async with client.session("async") as session:
                await session.sync(["a text ", "and more "])
                await session.append("b")
                head = session.head
                fork = await session.fork()
                await fork.append("c")
                await fork.rewind(head)
                assert fork.text == session.text
                assert (await session.decide(ALWAYS, state=CALL)).action == "block"
                assert await session.guard(ALWAYS)(state={"tool": "read"})
                both = await asyncio.gather(session.ask(ASKED), fork.ask(ASKED))
                assert numbers(both[0]) == pytest.approx(numbers(both[1]), abs=1e-9)
                alone = await client.system_one(session.text, ASKED)
                assert numbers(alone) == pytest.approx(numbers(both[0]), abs=1e-9)
                return numbers(both[0])

        assert asyncio.run(use()) == pytest.approx(
            stage.stateless("a text and more b", ASKED), abs=1e-9, rel=0
        )

    def test_a_cancelled_question_is_given_up(self, stage: Stage) -> None:
        """And the next one is answered."""

        async def use() -> None:
            client = AsyncClient(transport=stage.client._transport)
            session = client.session()
            await session.append("text " * 100)
            task = asyncio.create_task(session.ask(ASKED))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await session.ask(ASKED)

        asyncio.run(use())


def test_no_time_is_timed_out(session: Session) -> None:
    """Nothing hangs, and the next question is answered."""
    with pytest.raises(TimedOut):
        session.ask(ASKED, timeout=1e-6)
    session.ask(ASKED)


def test_sessions_expire(stage: Stage) -> None:
    """After their time to live without use; the client sends its history again."""
    from flide_agent import Client
    from flide_agent.runtime import Runtime
    from flide_agent.runtime.local import LocalTransport

    now = [0.0]
    runtime = Runtime(stage.engine, clock=lambda: now[0])
    with Client(transport=LocalTransport(runtime, owns_engine=False)) as client:
        session = client.session("short", ttl=10)
        session.append("a", "b")
        now[0] = 9
        assert session.append("c").reason == "appended"
        now[0] = 18
        assert session.ask(ASKED).session.reason == "appended"
        now[0] = 29
        assert session.ask(ASKED).session.reason == "expired"
        assert session.text == "abc"


class Broken:
    """A way that ends nowhere."""

    def send(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        raise EngineUnavailable("the engine is down")

    async def asend(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        raise EngineUnavailable("the engine is down")

    def watch(self, session: str, request: Any, callback: Any, *, tenant: str | None) -> Any:
        raise EngineUnavailable("the engine is down")

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass
