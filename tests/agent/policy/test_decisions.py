"""Decisions: what shadow mode and errors make of a verdict, and the form that is stored."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flide_agent.exceptions import InvalidInput
from flide_agent.policy import Action, Decision, Policy, decided, failed, judge
from tests.agent.policy.strategies import (
    ACTIONS,
    GUARD,
    TOOLS,
    answers_to,
    decision,
    noul,
    policies,
)

SHADOW = Policy(rules=GUARD.rules, mode="shadow")


class Reply(BaseModel):
    """A model that holds a decision, as replies do."""

    decision: Decision | None


def test_a_decision_says_what_was_decided_and_by_whom() -> None:
    """It carries the verdict, the policy's digest, and where it was taken."""
    made = decision(0.95, model="jev-2026", session="s", head="h", tool="refund")

    assert (made.action, made.would, made.rule, made.p) == ("block", "block", "injection", 0.95)
    assert made.reason == "injection: 0.95 is at least 0.9."
    assert made.answers == {"injection": noul(0.95)}
    assert made.policy == GUARD.digest
    assert (made.model, made.session, made.head, made.tool) == ("jev-2026", "s", "h", "refund")
    assert (made.degraded, made.shadow, made.replayed) == (False, False, False)
    assert made.error is None


@pytest.mark.parametrize(("p", "true"), [(0.1, True), (0.7, False), (0.95, False)])
def test_only_an_allow_is_true(p: float, true: bool) -> None:
    """`if decision:` is the question whether to go on."""
    assert bool(decision(p)) is true


@pytest.mark.parametrize(("p", "would"), [(0.1, "allow"), (0.7, "review"), (0.95, "block")])
def test_shadow_mode_allows_and_records(p: float, would: str) -> None:
    """A policy that only watches allows, and says what it would have done."""
    made = decision(p, SHADOW)

    assert (made.action, made.would, made.shadow) == ("allow", would, True)
    assert made
    assert made.rule == "injection"


def test_ids_differ_and_replays_keep_theirs() -> None:
    """Equal decisions are two; a replay is the same one."""
    one, other = decision(), decision()

    assert one.id != other.id
    assert dataclasses.replace(one, replayed=True).id == one.id


@pytest.mark.parametrize("on_error", ACTIONS)
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_nobody_could_be_asked(on_error: Action, mode: str) -> None:
    """The policy says what then; the reason says why, in the words of the error."""
    policy = Policy.model_validate({"rules": GUARD.rules, "on_error": on_error, "mode": mode})

    made = failed(policy, TimeoutError("there was no answer\nwithin 1 s."), session="s", tool="t")
    assert made.action == ("allow" if mode == "shadow" else on_error)
    assert made.would == on_error
    assert made.degraded
    assert made.reason == (
        "The engine could not be asked (TimeoutError): there was no answer within 1 s."
    )
    assert made.error == "TimeoutError"
    assert (made.rule, made.p, made.answers) == (None, None, None)
    assert (made.policy, made.session, made.tool) == (policy.digest, "s", "t")
    assert Decision.from_json(made.to_json()) == made


def test_an_error_without_words() -> None:
    """Its kind is enough for a sentence; of very many words, the first are."""
    assert failed(GUARD, ConnectionError()).reason == (
        "The engine could not be asked (ConnectionError)."
    )
    assert len(failed(GUARD, ValueError("x" * 9999)).reason) < 400


@given(policies(), st.sampled_from(TOOLS), st.data())
def test_a_decision_survives_json(policy: Policy, tool: str | None, data: st.DataObject) -> None:
    """Stored and read again, by itself or inside a reply, a decision is the same."""
    answers = data.draw(answers_to(policy.questions(tool)))
    made = decided(policy, judge(policy, answers, tool=tool), tool=tool, model="m")

    assert Decision.from_json(made.to_json()) == made
    assert Decision.from_json(made.to_json().encode()) == made
    assert Reply.model_validate_json(Reply(decision=made).model_dump_json()).decision == made
    json.loads(made.to_json(), parse_constant=pytest.fail)


def test_a_newer_decision_can_be_read() -> None:
    """Fields that a later version adds are left alone."""
    made = decision()

    assert Decision.from_json(json.dumps({**json.loads(made.to_json()), "later": 1})) == made


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "the decision: action: it is missing; give one."),
        (
            json.dumps({**json.loads(decision().to_json()), "action": "maybe"}),
            'the decision: action: the text "maybe" was given, but it must be "allow", "review" or '
            '"block".',
        ),
    ],
)
def test_what_is_no_decision_is_refused(text: str, sentence: str) -> None:
    """A stored decision is read or refused, never guessed."""
    with pytest.raises(InvalidInput) as refused:
        Decision.from_json(text)
    assert str(refused.value) == sentence
