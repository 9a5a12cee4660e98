"""Guarded functions: what is judged, when they run, and what the caller gets when they do not."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
import json
import pickle
import threading
from datetime import date
from typing import Any

import pytest
from hypothesis import given

from flide_agent.exceptions import (
    ActionBlocked,
    ActionNeedsReview,
    ActionRefused,
    FlideError,
    InvalidInput,
)
from flide_agent.policy import Decision, Policy, Rule, decided, guarded, judge
from flide_agent.types import Noul
from tests.agent.policy.strategies import GUARD, JSON, decision, noul

REFUSALS = [(0.7, ActionNeedsReview), (0.95, ActionBlocked)]


class Judge:
    """A session that has one answer to everything, and remembers what it was asked about."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = p
        self.calls: list[tuple[Any, str | None]] = []
        self.threads: list[int] = []

    def decide(self, policy: Policy, *, state: Any, tool: str | None) -> Decision:
        """Decide at once."""
        self.calls.append((state, tool))
        self.threads.append(threading.get_ident())
        answers = {key: noul(self.p) for key in policy.questions(tool)}
        return decided(policy, judge(policy, answers, tool=tool), tool=tool)


class AsyncJudge:
    """The same for an event loop."""

    def __init__(self, p: float = 0.1) -> None:
        self.judge = Judge(p)

    async def decide(self, policy: Policy, *, state: Any, tool: str | None) -> Decision:
        """Decide a little later."""
        await asyncio.sleep(0)
        return self.judge.decide(policy, state=state, tool=tool)


def test_a_call_that_is_allowed_runs() -> None:
    """It gets its arguments and gives its result; judged is the call with all its arguments."""
    session = Judge()

    @guarded(GUARD, session=session)
    def refund(order: str, /, amount: float = 5.0, *notes: str, fast: bool = False) -> str:
        """Give money back."""
        return f"{order} {amount} {notes} {fast}"

    assert refund("A1", 2.5, "late", "sorry", fast=True) == "A1 2.5 ('late', 'sorry') True"
    assert refund("A2") == "A2 5.0 () False"
    assert session.calls == [
        (
            {
                "tool": "refund",
                "arguments": {
                    "order": "A1",
                    "amount": 2.5,
                    "notes": ["late", "sorry"],
                    "fast": True,
                },
            },
            "refund",
        ),
        (
            {
                "tool": "refund",
                "arguments": {"order": "A2", "amount": 5.0, "notes": [], "fast": False},
            },
            "refund",
        ),
    ]


@pytest.mark.parametrize(("p", "error"), REFUSALS)
def test_a_call_that_is_not_allowed_does_not_run(p: float, error: type[ActionRefused]) -> None:
    """The caller gets an error that carries the decision and reads as its reason."""
    ran = []

    @guarded(GUARD, session=Judge(p))
    def refund(order: str) -> None:
        ran.append(order)

    with pytest.raises(error) as refused:
        refund("A1")
    assert not ran
    assert refused.value.decision.p == p
    assert refused.value.decision.tool == "refund"
    assert str(refused.value) == refused.value.decision.reason
    assert isinstance(refused.value, FlideError)


@pytest.mark.parametrize("error", [ActionBlocked, ActionNeedsReview])
def test_refusals_travel_between_processes(error: type[ActionRefused]) -> None:
    """They can be pickled, as errors of worker processes are."""
    refusal = error(decision(0.95))

    copy = pickle.loads(pickle.dumps(refusal))
    assert type(copy) is error
    assert copy.decision == refusal.decision


@pytest.mark.parametrize(("p", "action"), [(0.7, "review"), (0.95, "block")])
def test_on_block_replaces_the_error(p: float, action: str) -> None:
    """It hears the decision, and what it returns is what the caller gets."""

    @guarded(GUARD, session=Judge(p), on_block=lambda decision: decision.action)
    def refund() -> str:
        return "ran"

    assert refund() == action


def test_shadow_mode_runs() -> None:
    """A policy that only watches stops nothing."""
    session = Judge(0.95)

    @guarded(Policy(rules=GUARD.rules, mode="shadow"), session=session)
    def refund() -> str:
        return "ran"

    assert refund() == "ran"
    assert len(session.calls) == 1


def test_rules_about_tools_go_by_the_name_of_the_function() -> None:
    """A rule with tools is asked where its pattern fits the name."""
    policy = Policy([Rule("a", Noul(instructions="?"), block=0.5, tools=["refund_*"])])

    @guarded(policy, session=Judge(0.9))
    def refund_order() -> None: ...

    @guarded(policy, session=Judge(0.9))
    def read_mail() -> str:
        return "ran"

    with pytest.raises(ActionBlocked):
        refund_order()
    assert read_mail() == "ran"


class Bank:
    """Something with methods."""

    session = Judge()

    @guarded(GUARD, session=session)
    def refund(self, amount: int) -> int:
        """Give back."""
        return amount

    @classmethod
    @guarded(GUARD, session=session)
    def audit(cls, year: int) -> int:
        """Look back."""
        return year


def test_methods_are_judged_without_their_object() -> None:
    """What the method belongs to is no argument of the call."""
    Bank.session.calls.clear()

    assert (Bank().refund(5), Bank.audit(2026)) == (5, 2026)
    assert [state for state, _ in Bank.session.calls] == [
        {"tool": "refund", "arguments": {"amount": 5}},
        {"tool": "audit", "arguments": {"year": 2026}},
    ]


@dataclasses.dataclass
class Order:
    """No JSON."""

    key: str


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP: Any = 0
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        (Order("A1"), "Order(key='A1')"),
        ([Order("A1"), 5], ["Order(key='A1')", 5]),
        ({"due": date(2026, 1, 2)}, {"due": "datetime.date(2026, 1, 2)"}),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        ({1: "a", "1": "b"}, "{1: 'a', '1': 'b'}"),
        ({(1, 2): "a"}, "{(1, 2): 'a'}"),
        (float("nan"), "nan"),
        ([float("inf")], "[inf]"),
        ("half \ud83d", "'half \\ud83d'"),
        (b"bytes", "b'bytes'"),
        (ENDLESS, "[[...]]"),
        (DEEP, repr(DEEP)),
        (None, None),
    ],
)
def test_arguments_that_are_no_json(given: Any, judged: Any) -> None:
    """They are shown by their repr, the rest around them as it is."""
    session = Judge()

    @guarded(GUARD, session=session)
    def look(it: Any) -> Any:
        return it

    assert look(given) is given
    assert session.calls[0][0]["arguments"] == {"it": judged}


@given(JSON)
def test_arguments_that_are_json(value: Any) -> None:
    """They are judged as they are, and as they were."""
    session = Judge()

    @guarded(GUARD, session=session)
    def look(it: Any) -> None:
        if isinstance(it, dict):
            it["changed"] = 1

    before = json.dumps(value)
    look(value)
    assert json.dumps(session.calls[0][0]["arguments"]["it"]) == before


def test_a_call_that_does_not_fit_is_not_judged() -> None:
    """Wrong arguments are a TypeError, as without the guard."""
    session = Judge()

    @guarded(GUARD, session=session)
    def refund(order: str) -> None: ...

    with pytest.raises(TypeError, match="order"):
        refund()  # type: ignore[call-arg]
    assert not session.calls


def test_a_session_that_fails_lets_nothing_run() -> None:
    """An error in place of a decision is no decision."""

    class Down:
        def decide(self, policy: Policy, *, state: Any, tool: str | None) -> Decision:
            raise InvalidInput("down")

    @guarded(GUARD, session=Down())
    def refund() -> None:
        pytest.fail("ran")

    with pytest.raises(InvalidInput, match="down"):
        refund()


NOW: contextvars.ContextVar[Judge] = contextvars.ContextVar("NOW")


def test_the_session_of_now() -> None:
    """A function may say, at every call, which session decides."""

    @guarded(GUARD, session=NOW.get)
    def refund() -> str:
        return "ran"

    def within(session: Judge) -> str:
        NOW.set(session)
        return refund()

    assert contextvars.copy_context().run(within, Judge(0.1)) == "ran"
    with pytest.raises(ActionBlocked):
        contextvars.copy_context().run(within, Judge(0.95))


def test_a_guarded_function_is_still_itself() -> None:
    """Its name, its docstring, its signature, and whether it is awaited."""

    @guarded(GUARD, session=Judge())
    def refund(order: str) -> None:
        """Give money back."""

    @guarded(GUARD, session=Judge())
    async def later(order: str) -> None: ...

    assert (refund.__name__, refund.__doc__) == ("refund", "Give money back.")
    assert str(inspect.signature(refund)) == "(order: 'str') -> 'None'"
    assert not inspect.iscoroutinefunction(refund)
    assert inspect.iscoroutinefunction(later)


@pytest.mark.parametrize("make", [Judge, AsyncJudge])
def test_async_functions(make: type[Judge] | type[AsyncJudge]) -> None:
    """With a session of either kind they run if allowed, and else the caller gets the error."""

    def refund_with(p: float) -> Any:
        @guarded(GUARD, session=make(p))
        async def refund(order: str) -> str:
            await asyncio.sleep(0)
            return order

        return refund

    assert asyncio.run(refund_with(0.1)("A1")) == "A1"
    for p, error in REFUSALS:
        with pytest.raises(error):
            asyncio.run(refund_with(p)("A1"))


def test_a_session_that_blocks_does_not_block_the_loop() -> None:
    """It decides in another thread, where it still sees the caller's context."""
    session = Judge()

    @guarded(GUARD, session=NOW.get)
    async def refund() -> int:
        return threading.get_ident()

    async def run() -> int:
        NOW.set(session)
        return await refund()

    assert asyncio.run(run()) == threading.get_ident()
    assert session.threads != [threading.get_ident()]


def test_on_block_may_be_awaited() -> None:
    """For an async function, what takes the place of the result may come later."""

    async def ask_a_person(decision: Decision) -> str:
        await asyncio.sleep(0)
        return f"asked about {decision.tool}"

    @guarded(GUARD, session=AsyncJudge(0.7), on_block=ask_a_person)
    async def refund() -> str:
        return "ran"

    @guarded(GUARD, session=AsyncJudge(0.7), on_block=lambda _: "no")
    async def send() -> str:
        return "ran"

    assert asyncio.run(refund()) == "asked about refund"
    assert asyncio.run(send()) == "no"


def test_a_plain_function_cannot_wait() -> None:
    """A session that must be awaited is refused in words, and nothing runs."""

    @guarded(GUARD, session=AsyncJudge())
    def refund() -> None:
        pytest.fail("ran")

    with pytest.raises(InvalidInput) as refused:
        refund()
    assert str(refused.value) == (
        "refund is a plain function, but its session must be awaited; make it `async def refund`, "
        "or give it a session without await."
    )
