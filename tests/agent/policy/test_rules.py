"""Rules and policies: which are refused and in which words, who is asked, and what names them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flide_agent.exceptions import InvalidInput
from flide_agent.policy import Limits, Policy, Rule, parse_policy
from flide_agent.types import Choice, Noul, Score
from tests.agent.policy.strategies import policies

if TYPE_CHECKING:
    from collections.abc import Callable

NOUL = Noul(instructions="Is it an attack?")
CHOICE = Choice(criteria={"refund": None, "chargeback": "The bank takes it back"})
SCORE = Score(criteria=["calm", "cross", "furious"])
RULE = Rule("injection", NOUL, block=0.9, review=0.6, release=0.4)

REFUSED_RULES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "no thresholds": (
        ("a", NOUL),
        {},
        'the rule "a": it has neither block nor review, so it could never act; set one of them.',
    ),
    "only release": (
        ("a", NOUL),
        {"release": 0.4},
        'the rule "a": it has neither block nor review, so it could never act; set one of them.',
    ),
    "empty id": (
        ("", NOUL),
        {"block": 0.9},
        'the rule "": id: the text "" was given, but it must be a name.',
    ),
    "half a character in the id": (
        ("\ud83d", NOUL),
        {"block": 0.9},
        'the rule "\\ud83d": id: the lone surrogate \\ud83d is half a character; '
        "write the whole one or drop it.",
    ),
    "no question": (
        ("a", "Is it?"),
        {"block": 0.9},
        'the rule "a": question: the text "Is it?" was given, but a question is a map with a '
        '"type".',
    ),
    "probability above 1": (
        ("a", NOUL),
        {"block": 1.4},
        'the rule "a": block is 1.4, but the probability lies between 0 and 1; '
        "give a number in that range.",
    ),
    "negative": (
        ("a", NOUL),
        {"review": -0.1},
        'the rule "a": review is -0.1, but the probability lies between 0 and 1; '
        "give a number in that range.",
    ),
    "score above its levels": (
        ("a", SCORE),
        {"block": 2.5},
        'the rule "a": block is 2.5, but the score lies between 0 and 2; '
        "give a number in that range.",
    ),
    "option above 1": (
        ("a", CHOICE),
        {"review": {"chargeback": 50}},
        'the rule "a": review of "chargeback" is 50.0, but the probability lies between 0 and 1; '
        "give a number in that range.",
    ),
    "NaN": (
        ("a", NOUL),
        {"block": float("nan")},
        'the rule "a": block: the number nan is no threshold; give a number, or for a choice a map '
        'from option to number, such as {"chargeback": 0.5}.',
    ),
    "text": (
        ("a", NOUL),
        {"block": "0.9"},
        'the rule "a": block: the text "0.9" is no threshold; give a number, or for a choice a map '
        'from option to number, such as {"chargeback": 0.5}.',
    ),
    "truth value": (
        ("a", CHOICE),
        {"block": {"refund": True}},
        'the rule "a": block: true is no threshold; give a number, or for a choice a map from '
        'option to number, such as {"chargeback": 0.5}.',
    ),
    "review above block": (
        ("a", NOUL),
        {"block": 0.5, "review": 0.6},
        'the rule "a": review is 0.6 and block is 0.5, but review must not be above block; '
        "lower review or raise block.",
    ),
    "release above review": (
        ("a", NOUL),
        {"block": 0.9, "review": 0.6, "release": 0.7},
        'the rule "a": release is 0.7 and review is 0.6, but release must not be above review; '
        "lower release or raise review.",
    ),
    "release above block": (
        ("a", SCORE),
        {"block": 1, "release": 1.5},
        'the rule "a": release is 1.5 and block is 1.0, but release must not be above block; '
        "lower release or raise block.",
    ),
    "review above block of one option": (
        ("a", CHOICE),
        {"block": {"refund": 0.9, "chargeback": 0.5}, "review": {"chargeback": 0.6}},
        'the rule "a": review of "chargeback" is 0.6 and block of "chargeback" is 0.5, '
        "but review must not be above block; lower review or raise block.",
    ),
    "one number for a choice": (
        ("a", CHOICE),
        {"block": 0.5},
        'the rule "a": block is 0.5, but a choice has a number for every option; '
        'give a map such as {"refund": 0.5}.',
    ),
    "a map for a noul": (
        ("a", NOUL),
        {"block": {"true": 0.5}},
        'the rule "a": block is a map, but a noul has one number; give a number.',
    ),
    "a map for a score": (
        ("a", SCORE),
        {"review": {"furious": 0.5}},
        'the rule "a": review is a map, but a score has one number; give a number.',
    ),
    "unknown option": (
        ("a", CHOICE),
        {"block": {"charge": 0.5}},
        'the rule "a": block names "charge", which is no option; '
        'the options are "refund", "chargeback".',
    ),
    "option that is no text": (
        ("a", CHOICE),
        {"block": {1: 0.5}},
        'the rule "a": block: the number 1 is not text, as the keys of a map must be; quote it.',
    ),
    "empty map": (
        ("a", CHOICE),
        {"block": {}},
        'the rule "a": block: the map is empty; name an option, or leave it out.',
    ),
    "release of an option that does not act": (
        ("a", CHOICE),
        {"block": {"refund": 0.5}, "release": {"refund": 0.4, "chargeback": 0.4}},
        'the rule "a": release names the option "chargeback", which neither block nor review '
        'names; give "chargeback" one of them or leave it out.',
    ),
    "release of some options": (
        ("a", CHOICE),
        {"block": {"refund": 0.5, "chargeback": 0.5}, "release": {"refund": 0.4}},
        'the rule "a": release leaves out the option "chargeback", but a choice is released when '
        'all its watched options have come down; name "chargeback" too.',
    ),
    "tools as text": (
        ("a", NOUL),
        {"block": 0.5, "tools": "refund_*"},
        'the rule "a": tools: the text "refund_*" was given, but tools are a list of name patterns '
        'such as ["refund_*"].',
    ),
    "no tools": (
        ("a", NOUL),
        {"block": 0.5, "tools": []},
        'the rule "a": tools: the list is empty, so the rule would never be asked; leave it out to '
        'ask always, or give ["*"] for every tool call.',
    ),
    "empty pattern": (
        ("a", NOUL),
        {"block": 0.5, "tools": ["refund_*", ""]},
        'the rule "a": tools: the text "" was given, but it must be a name.',
    ),
}

REFUSED_POLICIES: dict[str, tuple[Callable[[], Policy], str]] = {
    "no rules": (
        lambda: Policy(rules=[]),
        "the policy has no rules, so it could never act; give it at least one.",
    ),
    "one id twice": (
        lambda: Policy(rules=[RULE, Rule("b", NOUL, block=0.5), RULE]),
        'the policy has 2 rules with the id "injection"; give each its own.',
    ),
    "unknown on_error": (
        lambda: Policy(rules=[RULE], on_error="open"),  # type: ignore[arg-type]
        'the policy: on_error: the text "open" was given, but it must be "allow", "review" or '
        '"block".',
    ),
    "unknown mode": (
        lambda: Policy(rules=[RULE], mode="off"),  # type: ignore[arg-type]
        'the policy: mode: the text "off" was given, but it must be "enforce" or "shadow".',
    ),
    "no time": (
        lambda: Policy(rules=[RULE], timeout=0),
        "the policy: timeout: the number 0 was given, but it must be a number of seconds above 0.",
    ),
    "endless time": (
        lambda: Policy(rules=[RULE], timeout=float("inf")),
        "the policy: timeout: the number inf was given, but it must be a number of seconds above "
        "0.",
    ),
    "rules in a set": (
        lambda: Policy(rules={RULE.id: RULE}),  # type: ignore[arg-type]
        "the policy: rules: a map was given, but it must be a list.",
    ),
    "a rule that is none": (
        lambda: Policy(rules=["injection"]),  # type: ignore[list-item]
        'the policy: rules[0]: the text "injection" was given, but it must be a map.',
    ),
}

WRITTEN_RULE = {"id": "a", "question": {"type": "noul", "instructions": "?"}, "block": 0.5}

REFUSED_DOCUMENTS: dict[str, tuple[str, str]] = {
    "no rules": ("{}", "the policy: rules: it is missing; give one."),
    "no id": (
        json.dumps({"rules": [{**WRITTEN_RULE, "id": "b"}, {"block": 1}]}),
        "the policy: rules[1].id: it is missing; give one.",
    ),
    "misspelt threshold": (
        json.dumps({"rules": [{**WRITTEN_RULE, "relase": 0.5}]}),
        "the policy: rules[0].relase: there is no such field; correct its name or leave it out.",
    ),
    "misspelt setting": (
        json.dumps({"rules": [WRITTEN_RULE], "on_eror": "allow"}),
        "the policy: on_eror: there is no such field; correct its name or leave it out.",
    ),
    "a question that asks nothing": (
        json.dumps({"rules": [{**WRITTEN_RULE, "question": {"type": "noul"}}]}),
        "the policy: rules[0].question.noul: it asks nothing; give instructions, or describe an "
        "outcome in criteria.",
    ),
    "out of range": (
        json.dumps({"rules": [{**WRITTEN_RULE, "block": 5}]}),
        'the policy: rules[0]: the rule "a": block is 5.0, but the probability lies between 0 and '
        "1; give a number in that range.",
    ),
    "the same field twice": (
        '{"rules": [], "rules": []}',
        'the policy: the key "rules" appears twice in one map; keep one of them.',
    ),
    "an array": ("[]", "the policy: an array was given, but it must be a map."),
}


@pytest.mark.parametrize("case", REFUSED_RULES)
def test_refused_rules(case: str) -> None:
    """A rule that does not fit its question, or could never act, is refused in one sentence."""
    args, fields, sentence = REFUSED_RULES[case]

    with pytest.raises(InvalidInput) as refused:
        Rule(*args, **fields)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("case", REFUSED_POLICIES)
def test_refused_policies(case: str) -> None:
    """A policy that could never act, or has an unknown setting, is refused in one sentence."""
    make, sentence = REFUSED_POLICIES[case]

    with pytest.raises(InvalidInput) as refused:
        make()
    assert str(refused.value) == sentence


@pytest.mark.parametrize("case", REFUSED_DOCUMENTS)
def test_refused_documents(case: str) -> None:
    """What is wrong with a written policy is said in one sentence with its place."""
    document, sentence = REFUSED_DOCUMENTS[case]

    with pytest.raises(InvalidInput) as refused:
        parse_policy(document)
    assert str(refused.value) == sentence
    if case != "the same field twice":
        with pytest.raises(ValidationError):
            Policy.model_validate_json(document)


def test_thresholds_may_be_equal_and_at_the_ends() -> None:
    """Release, review and block may be one number, and any number of the range."""
    for p in (0, 0.5, 1):
        assert Rule("a", NOUL, release=p, review=p, block=p).limits == [Limits(None, p, p, p)]
    assert Rule("a", SCORE, block=2).top == 2
    assert Rule("a", Score(criteria=["only"]), block=0).top == 0


def test_limits_of_a_choice() -> None:
    """A choice's limits are those of the options it watches, in the order of the question."""
    rule = Rule("a", CHOICE, block={"chargeback": 0.9}, review={"chargeback": 0.5, "refund": 0.7})

    assert rule.limits == [
        Limits("refund", None, 0.7, None),
        Limits("chargeback", 0.9, 0.5, None),
    ]


def test_rules_and_policies_are_frozen() -> None:
    """Nobody changes a threshold under a session's feet."""
    with pytest.raises(ValidationError, match="frozen"):
        RULE.block = 1.0
    with pytest.raises(ValidationError, match="frozen"):
        Policy(rules=[RULE]).on_error = "allow"


def test_a_policy_closes_on_errors_by_itself() -> None:
    """Nothing opens silently: without a word about errors they block."""
    policy = Policy(rules=[RULE])

    assert (policy.on_error, policy.mode, policy.timeout) == ("block", "enforce", 1.0)


ALWAYS = Rule("always", NOUL, block=0.5)
REFUNDS = Rule("refunds", SCORE, block=1, tools=["refund_*", "chargeback"])
EVERY = Rule("every", CHOICE, review={"refund": 0.5}, tools=["*"])


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        (None, ["always"]),
        ("refund_order", ["always", "refunds", "every"]),
        ("chargeback", ["always", "refunds", "every"]),
        ("Refund_order", ["always", "every"]),
        ("order_refund_", ["always", "every"]),
        ("chargebacks", ["always", "every"]),
        ("refund_\nall", ["always", "refunds", "every"]),
        ("", ["always", "every"]),
    ],
)
def test_rules_about_tools(tool: str | None, asked: list[str]) -> None:
    """A rule with tools is asked about calls of matching names; case counts. Others always are."""
    policy = Policy(rules=[ALWAYS, REFUNDS, EVERY])

    assert [rule.id for rule in policy.rules_for(tool)] == asked
    assert list(policy.questions(tool)) == asked
    assert policy.questions(tool)["always"] is NOUL


@given(policies())
def test_a_policy_survives_json(policy: Policy) -> None:
    """Written and read again, a policy is the same, and so is its digest."""
    written = policy.model_dump_json()

    for read in (Policy.model_validate_json(written), parse_policy(written)):
        assert read == policy
        assert read.digest == policy.digest
        assert list(read.questions("x")) == list(policy.questions("x"))


def shuffled(value: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    return dict(data.draw(st.permutations(list(value.items()))))


@given(policies(), st.data())
def test_the_digest_does_not_depend_on_the_order_of_fields(
    policy: Policy, data: st.DataObject
) -> None:
    """Fields and thresholds in another order are the same policy."""
    content = policy.model_dump(mode="json")
    for rule in content["rules"]:
        rule["question"] = shuffled(rule["question"], data)
        for name in ("block", "review", "release"):
            if isinstance(rule[name], dict):
                rule[name] = shuffled(rule[name], data)
    content["rules"] = [shuffled(rule, data) for rule in content["rules"]]

    assert parse_policy(json.dumps(shuffled(content, data))).digest == policy.digest


def test_the_digest_leaves_defaults_out_of_account() -> None:
    """A default that is written and one that is not are the same; so are 1 and 1.0, 0 and -0.0."""
    short = {"rules": [{**WRITTEN_RULE, "block": 1}]}
    long = {
        "timeout": 1,
        "mode": "enforce",
        "on_error": "block",
        "rules": [{**WRITTEN_RULE, "block": 1.0, "review": None, "release": None, "tools": None}],
    }

    assert parse_policy(short).digest == parse_policy(long).digest
    zero, minus_zero = (Policy([Rule("a", NOUL, review=review)]) for review in (0, -0.0))
    assert zero.digest == minus_zero.digest


def test_the_digest_tells_apart_whatever_could_change_a_decision() -> None:
    """Every setting, the wording of a question, and the order of rules and of options count."""
    one, two = Rule("a", NOUL, review=0.5), Rule("b", CHOICE, review={"refund": 0.5})
    swapped = Choice(criteria=dict(reversed(CHOICE.criteria.items())))
    variants = [
        Policy(rules=[one, two]),
        Policy(rules=[two, one]),
        Policy(rules=[one]),
        Policy(rules=[one, two], on_error="review"),
        Policy(rules=[one, two], mode="shadow"),
        Policy(rules=[one, two], timeout=2),
        Policy(rules=[one, Rule("b", swapped, review={"refund": 0.5})]),
        Policy(rules=[one, Rule("b", CHOICE, review={"chargeback": 0.5})]),
        Policy(rules=[one, Rule("b", CHOICE, block={"refund": 0.5})]),
        Policy(rules=[Rule("a", NOUL, review=0.5, release=0.5), two]),
        Policy(rules=[Rule("a", NOUL, review=0.5, tools=["*"]), two]),
        Policy(rules=[Rule("c", NOUL, review=0.5), two]),
        Policy(rules=[Rule("a", Noul(instructions="Is it one?"), review=0.5), two]),
        Policy(rules=[one, two]).model_copy(update={"timeout": 3.0}),
    ]

    assert len({policy.digest for policy in variants}) == len(variants)


def test_the_digest_is_the_same_in_every_version() -> None:
    """Records of decisions outlive a release: a digest must go on naming its policy."""
    policy = Policy(
        rules=[RULE, Rule("intent", CHOICE, review={"chargeback": 0.5}, tools=["refund_*"])],
        on_error="review",
    )

    assert policy.digest == "a43819ac52a5687b722aa52a36bb38daf155648d4d11d40a46b5dcaee4a2a5ed"
