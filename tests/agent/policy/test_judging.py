"""Verdicts: bands, hysteresis, the strictest rule, and answers that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flide_agent.policy import Policy, Rule, judge
from flide_agent.types import Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer
from tests.agent.policy.strategies import (
    ACTIONS,
    PROBABILITIES,
    TOOLS,
    answers_to,
    choice,
    noul,
    policies,
    rules,
    score,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

    from flide_agent.policy import Action, Band, Bands
    from flide_agent.types import Answer

NOUL = Noul(instructions="Is it an attack?")
CHOICE = Choice(criteria={"refund": None, "chargeback": None, "other": None})
SCORE = Score(criteria=["calm", "cross", "furious"])
INJECTION = Rule("injection", NOUL, block=0.9, review=0.6, release=0.4)


def alone(rule: Rule, answer: Answer, band: Band | None = None) -> tuple[str, str, Bands]:
    """What one rule says: action, reason, bands."""
    verdict = judge(Policy([rule]), {rule.id: answer}, bands={rule.id: band} if band else {})
    assert verdict.rule == rule.id
    assert not verdict.degraded
    return verdict.action, verdict.reason, verdict.bands


def stricter(one: str, other: str) -> bool:
    return ACTIONS.index(one) > ACTIONS.index(other)


@pytest.mark.parametrize(
    ("p", "action", "reason"),
    [
        (0.93, "block", "injection: 0.93 is at least 0.9."),
        (0.9, "block", "injection: 0.9 is at least 0.9."),
        (0.6, "review", "injection: 0.6 is at least 0.6."),
        (0.75, "review", "injection: 0.75 is at least 0.6."),
        (0.123456, "allow", "injection: 0.1235 is below 0.6."),
        (0.59999999, "allow", "injection: 0.59999999 is below 0.6."),
        (1.0, "block", "injection: 1 is at least 0.9."),
    ],
)
def test_three_bands(p: float, action: str, reason: str) -> None:
    """An action holds from its threshold on; the reason says by which number."""
    assert alone(INJECTION, noul(p))[:2] == (action, reason)


@pytest.mark.parametrize(
    ("rule", "p", "action"),
    [
        (Rule("a", NOUL, block=0.5), 0.5, "block"),
        (Rule("a", NOUL, block=0.5), 0.49, "allow"),
        (Rule("a", NOUL, review=0.5), 1.0, "review"),
        (Rule("a", NOUL, review=0.5), 0.49, "allow"),
        (Rule("a", NOUL, block=0.0), 0.0, "block"),
        (Rule("a", NOUL, review=0.5, block=0.5), 0.5, "block"),
    ],
)
def test_one_threshold_is_enough(rule: Rule, p: float, action: str) -> None:
    """A rule may only block or only review."""
    assert alone(rule, noul(p))[0] == action


def test_scores_are_judged_by_their_expectation() -> None:
    """A score's thresholds are levels, whatever the confidence is."""
    rule = Rule("mood", SCORE, review=1.0, block=1.75)

    assert alone(rule, score(0.99))[:2] == ("allow", "mood: 0.99 is below 1.")
    assert alone(rule, score(1.5))[:2] == ("review", "mood: 1.5 is at least 1.")
    assert alone(rule, score(2.01))[:2] == ("block", "mood: 2.01 is at least 1.75.")


def test_choices_are_judged_by_the_probability_of_an_option() -> None:
    """An option may act though another one is the choice, and however sure the model is."""
    rule = Rule("intent", CHOICE, review={"chargeback": 0.3}, block={"refund": 0.9})
    answer = choice(refund=0.6, chargeback=0.35, other=0.05)

    assert alone(rule, answer)[:2] == ("review", 'intent: 0.35 for "chargeback" is at least 0.3.')
    assert (
        alone(rule, choice(refund=0.95, chargeback=0.05, other=0.0))[1]
        == 'intent: 0.95 for "refund" is at least 0.9.'
    )
    assert alone(rule, choice(refund=0.5, chargeback=0.1, other=0.4))[:2] == (
        "allow",
        'intent: 0.1 for "chargeback" is below 0.3.',
    )


def test_confidence_is_never_looked_at() -> None:
    """Providers compute it in different ways, so it changes nothing."""
    rule = Rule("intent", CHOICE, block={"refund": 0.5})
    answer = choice(refund=0.4, chargeback=0.3, other=0.3)
    sure = answer.model_copy(update={"confidence": 1.0})

    assert alone(rule, answer) == alone(rule, sure)


@pytest.mark.parametrize(
    ("band", "p", "action", "after", "reason"),
    [
        (None, 0.5, "allow", None, "injection: 0.5 is below 0.6."),
        (
            "review",
            0.5,
            "review",
            "review",
            "injection: 0.5 has not come down to 0.4 since it was ",
        ),
        ("block", 0.5, "block", "block", "injection: 0.5 has not come down to 0.4 since it was bl"),
        ("block", 0.7, "block", "block", "injection: 0.7 has not come down to 0.4 since it was bl"),
        ("block", 0.4, "allow", None, "injection: 0.4 is below 0.6."),
        ("review", 0.4, "allow", None, "injection: 0.4 is below 0.6."),
        ("review", 0.95, "block", "block", "injection: 0.95 is at least 0.9."),
        ("review", 0.7, "review", "review", "injection: 0.7 is at least 0.6."),
        ("block", 0.95, "block", "block", "injection: 0.95 is at least 0.9."),
    ],
)
def test_hysteresis(
    band: Band | None, p: float, action: str, after: Band | None, reason: str
) -> None:
    """What was reviewed or blocked stays so until it has come down; it may rise."""
    said = alone(INJECTION, noul(p), band)

    assert said[0] == action
    assert said[1].startswith(reason)
    assert said[2] == ({"injection": after} if after else {})


def test_without_release_nothing_sticks() -> None:
    """Hysteresis is off where there is no release, whatever bands say."""
    rule = Rule("a", NOUL, block=0.9)

    assert alone(rule, noul(0.95)) == ("block", "a: 0.95 is at least 0.9.", {})
    assert alone(rule, noul(0.5), "block") == ("allow", "a: 0.5 is below 0.9.", {})
    assert judge(Policy([rule], on_error="allow"), {}, bands={"a": "block"}).action == "review"


def test_a_choice_is_released_when_all_watched_options_have_come_down() -> None:
    """One band a rule: it holds until no watched option is above its release."""
    rule = Rule(
        "intent",
        CHOICE,
        block={"refund": 0.8, "chargeback": 0.8},
        release={"refund": 0.5, "chargeback": 0.2},
    )

    assert alone(rule, choice(refund=0.1, chargeback=0.3, other=0.6), "block") == (
        "block",
        'intent: 0.3 for "chargeback" has not come down to 0.2 since it was blocked.',
        {"intent": "block"},
    )
    released = alone(rule, choice(refund=0.5, chargeback=0.2, other=0.3), "block")
    assert released[0] == "allow"
    assert released[2] == {}


def test_a_release_at_the_threshold() -> None:
    """Where release and review are one number, that number is reviewed."""
    rule = Rule("a", NOUL, review=0.5, release=0.5)

    assert alone(rule, noul(0.5), "review")[::2] == ("review", {"a": "review"})
    assert alone(rule, noul(0.49), "review")[::2] == ("allow", {})


def test_the_strictest_rule_decides() -> None:
    """A block comes before a review, however far that one is above its threshold."""
    policy = Policy([Rule("a", NOUL, review=0.1), Rule("b", NOUL, block=0.9)])

    verdict = judge(policy, {"a": noul(1.0), "b": noul(0.9)})
    assert (verdict.action, verdict.rule, verdict.p) == ("block", "b", 0.9)


def test_of_equally_strict_rules_the_one_furthest_above_decides() -> None:
    """Distances are shares of what a number can be; ties go to the first rule."""
    rules = [Rule("a", NOUL, block=0.5), Rule("b", SCORE, block=0.5), Rule("c", NOUL, block=0.5)]

    def decisive(a: float, b: float, c: float) -> str | None:
        return judge(Policy(rules), {"a": noul(a), "b": score(b), "c": noul(c)}).rule

    assert decisive(0.6, 0.9, 0.5) == "b"
    assert decisive(0.75, 0.9, 0.5) == "a"
    assert decisive(0.625, 0.5, 0.625) == "a"
    assert decisive(0.25, 0.25, 0.375) == "b"  # all allow: the one that was closest


def test_a_threshold_reached_now_decides_before_one_reached_earlier() -> None:
    """The reason is what is the case, where there is one."""
    policy = Policy([INJECTION, Rule("b", NOUL, block=0.9)])

    verdict = judge(policy, {"injection": noul(0.8), "b": noul(0.91)}, bands={"injection": "block"})
    assert verdict.reason == "b: 0.91 is at least 0.9."
    assert verdict.bands == {"injection": "block"}


def test_rules_that_are_not_asked_keep_their_bands() -> None:
    """A rule about tools is neither judged nor released by what is not a call of them."""
    tools = Rule("tools", NOUL, block=0.9, release=0.1, tools=["refund_*"])
    policy = Policy([INJECTION, tools])

    verdict = judge(policy, {"injection": noul(0.0)}, bands={"tools": "block", "gone": "block"})
    assert (verdict.action, verdict.degraded) == ("allow", False)
    assert verdict.bands == {"tools": "block"}

    answers = {"injection": noul(0.0), "tools": noul(0.2)}
    assert judge(policy, answers, bands=verdict.bands, tool="refund_order").action == "block"


def test_no_rule_applies() -> None:
    """Where nothing is asked, all is allowed, with a reason and no rule."""
    policy = Policy([Rule("a", NOUL, block=0.5, release=0.1, tools=["refund_*"])])

    verdict = judge(policy, {}, bands={"a": "block"}, tool="read_mail")
    assert (verdict.action, verdict.rule, verdict.p) == ("allow", None, None)
    assert verdict.reason == "No rule of the policy applies here."
    assert verdict.bands == {"a": "block"}
    assert not verdict.degraded


NAN = float("nan")
CHOICE_FIELDS = {"type": "choice", "choice": "refund", "confidence": 0.5}


def unchecked(kind: type[BaseModel], **fields: Any) -> Any:
    """An answer that nobody has validated."""
    return kind.model_construct(**fields)


def shares(probabilities: object) -> Any:
    return unchecked(ChoiceAnswer, **CHOICE_FIELDS, probabilities=probabilities)


MALFORMED: dict[str, tuple[Rule, object]] = {
    "missing": (INJECTION, None),
    "another type": (INJECTION, score(0.0)),
    "a choice for a score": (Rule("a", SCORE, block=1), choice(refund=1.0)),
    "a yes for a choice": (Rule("a", CHOICE, block={"refund": 0.5}), noul(0.0)),
    "a map": (INJECTION, {"type": "noul", "noul": 0.0}),
    "a number": (INJECTION, 0.0),
    "NaN": (INJECTION, unchecked(NoulAnswer, type="noul", noul=NAN)),
    "negative": (INJECTION, unchecked(NoulAnswer, type="noul", noul=-0.1)),
    "above 1": (INJECTION, unchecked(NoulAnswer, type="noul", noul=1.5)),
    "no number": (INJECTION, unchecked(NoulAnswer, type="noul", noul="0.0")),
    "no field": (INJECTION, unchecked(NoulAnswer, type="noul")),
    "NaN score": (
        Rule("a", SCORE, block=1),
        unchecked(ScoreAnswer, type="score", score=NAN),
    ),
    "score above the levels": (Rule("a", SCORE, block=1), score(2.5)),
    "an option missing": (
        Rule("a", CHOICE, block={"refund": 0.5}),
        choice(chargeback=0.5, other=0.5),
    ),
    "an option too many": (
        Rule("a", CHOICE, block={"refund": 0.5}),
        choice(refund=0.1, chargeback=0.2, other=0.3, fourth=0.4),
    ),
    "NaN option": (
        Rule("a", CHOICE, block={"refund": 0.5}),
        shares({"refund": 0.1, "chargeback": 0.9, "other": NAN}),
    ),
    "options that sum to nothing": (
        Rule("a", CHOICE, block={"refund": 0.5}),
        choice(refund=0.0, chargeback=0.0, other=0.0),
    ),
    "options that are no map": (Rule("a", CHOICE, block={"refund": 0.5}), shares([0.1])),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize(
    ("on_error", "action"), [("block", "block"), ("review", "review"), ("allow", "review")]
)
def test_a_missing_or_malformed_answer_is_never_an_allow(
    case: str, on_error: Action, action: str
) -> None:
    """It is what the policy says about errors, and a review at the least; and it can be seen."""
    rule, answer = MALFORMED[case]
    fault = "missing" if answer is None else "malformed"

    verdict = judge(Policy([rule], on_error=on_error), {rule.id: answer})  # type: ignore[dict-item]
    assert (verdict.action, verdict.rule, verdict.p) == (action, rule.id, None)
    assert verdict.reason == f"{rule.id}: its answer is {fault}, so it cannot be allowed."
    assert verdict.degraded
    assert verdict.answers == {}


@pytest.mark.parametrize("answers", [None, {}, {"other": noul(0.0)}, [noul(0.0)], "injection"])
def test_no_answers_at_all(answers: Any) -> None:
    """Answers that are no map, or to something else, are no answers."""
    verdict = judge(Policy([INJECTION], on_error="review"), answers)

    assert (verdict.action, verdict.degraded) == ("review", True)


@pytest.mark.parametrize(("band", "action"), [("review", "review"), ("block", "block")])
def test_no_answer_moves_no_rule_out_of_its_band(band: Band, action: str) -> None:
    """What was blocked stays blocked, though errors are allowed; and errors alone do not stick."""
    policy = Policy([INJECTION], on_error="allow")

    held = judge(policy, {}, bands={"injection": band})
    assert (held.action, held.bands) == (action, {"injection": band})
    assert judge(policy, {}).bands == {}


def test_a_number_decides_before_a_fault() -> None:
    """Of two blocks the one with a number is named; the fault still shows."""
    policy = Policy([INJECTION, Rule("b", NOUL, block=0.5)])

    verdict = judge(policy, {"b": noul(0.5)})
    assert (verdict.rule, verdict.p, verdict.degraded) == ("b", 0.5, True)
    assert verdict.answers == {"b": noul(0.5)}


@given(policies(), st.sampled_from(TOOLS), st.data())
def test_answers_of_another_kind_never_allow(
    policy: Policy, tool: str | None, data: st.DataObject
) -> None:
    """Whatever stands in place of one answer, the verdict is no allow."""
    asked = policy.questions(tool)
    assume(asked)
    answers: dict[str, Any] = data.draw(answers_to(asked))
    key = data.draw(st.sampled_from(list(asked)))
    wrong: list[Any] = [None, 0, "no", [], {}, unchecked(NoulAnswer, type="noul", noul=NAN)]
    wrong += [noul(0.0)] if not isinstance(asked[key], Noul) else [score(0.0)]
    answers[key] = data.draw(st.sampled_from(wrong))

    verdict = judge(policy, answers, tool=tool)
    assert verdict.action != "allow"
    assert verdict.degraded
    assert not stricter(policy.on_error, verdict.action)
    assert key not in verdict.answers


@given(rules(sticky=False), PROBABILITIES, PROBABILITIES)
def test_a_higher_number_is_never_laxer(rule: Rule, one: float, other: float) -> None:
    """Without hysteresis, raising the number never makes the action laxer."""
    low, high = sorted((one, other))
    if isinstance(rule.question, Choice):
        watched = rule.limits[0].option
        rest = [option for option in rule.question.criteria if option != watched]
        assume(rest and len(rule.limits) == 1)

        def answer(p: float) -> Answer:
            return choice(**{str(watched): p}, **dict.fromkeys(rest, (1 - p) / len(rest)))

    else:

        def answer(p: float) -> Answer:
            return noul(p) if isinstance(rule.question, Noul) else score(p * rule.top)

    below, above = (
        judge(Policy([rule]), {rule.id: answer(p)}, tool="refund_order").action for p in (low, high)
    )
    assert not stricter(below, above)


def expected(rule: Rule, numbers: dict[str | None, float], band: str) -> str:
    """A rule as a little machine: its next state, which is also its action."""
    reached = "allow"
    for option, block, review, _ in rule.limits:
        p = numbers[option]
        now = "block" if block is not None and p >= block else "allow"
        if now == "allow" and review is not None and p >= review:
            now = "review"
        reached = max(reached, now, key=ACTIONS.index)
    if rule.release is None or all(numbers[x.option] <= (x.release or 0) for x in rule.limits):
        return reached
    return max(reached, band, key=ACTIONS.index)


def numbers_of(answer: Answer) -> dict[str | None, float]:
    match answer:
        case NoulAnswer(noul=p):
            return {None: p}
        case ScoreAnswer(score=s):
            return {None: s}
    return {key: answer.probabilities[key] for key in answer.probabilities}


@given(policies(), st.data())
def test_verdicts_follow_the_machine_of_each_rule(policy: Policy, data: st.DataObject) -> None:
    """Over any run of answers and tools: the strictest rule's state is the action, states carry."""
    bands: Bands = {}
    states = dict.fromkeys([rule.id for rule in policy.rules], "allow")
    for _ in range(data.draw(st.integers(1, 6))):
        tool = data.draw(st.sampled_from(TOOLS))
        answers = data.draw(answers_to(policy.questions(tool)))
        actions = ["allow"]
        for rule in policy.rules_for(tool):
            band = states[rule.id] if rule.release is not None else "allow"
            states[rule.id] = expected(rule, numbers_of(answers[rule.id]), band)
            actions.append(states[rule.id])
        verdict = judge(policy, answers, bands=bands, tool=tool)
        bands = verdict.bands

        assert verdict.action == max(actions, key=ACTIONS.index)
        assert bands == {
            rule.id: states[rule.id]
            for rule in policy.rules
            if rule.release is not None and states[rule.id] != "allow"
        }
        assert verdict.answers == answers
        if verdict.rule is not None:
            assert states[verdict.rule] == verdict.action
            assert verdict.p in numbers_of(answers[verdict.rule]).values()


@given(policies(), st.sampled_from(TOOLS), st.data())
def test_hysteresis_never_makes_laxer(
    policy: Policy, tool: str | None, data: st.DataObject
) -> None:
    """With bands the action is at least what it is without them, and judging changes nothing."""
    answers = data.draw(answers_to(policy.questions(tool)))
    band: st.SearchStrategy[Any] = st.sampled_from(["review", "block"])
    bands = data.draw(st.fixed_dictionaries({}, optional={r.id: band for r in policy.rules}))
    before = dict(bands)

    with_bands = judge(policy, answers, bands=bands, tool=tool)
    assert not stricter(judge(policy, answers, tool=tool).action, with_bands.action)
    assert judge(policy, answers, bands=bands, tool=tool) == with_bands
    assert bands == before
