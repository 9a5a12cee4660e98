"""From answers to a verdict. Pure: the same policy, answers and bands give the same verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flide_agent._json import quote
from flide_agent.policy.rules import Action, Band
from flide_agent.types import Choice, ChoiceAnswer, Noul, NoulAnswer, Score, ScoreAnswer

if TYPE_CHECKING:
    from flide_agent.policy.rules import Limits, Policy, Rule
    from flide_agent.types import Answer

Bands: TypeAlias = Mapping[str, Band]
"""The band of every rule that is reviewed or blocked and has a `release`, by rule id."""

_STRICTNESS = {"allow": 0, "review": 1, "block": 2}
_PAST = {"review": "reviewed", "block": "blocked"}

_SLACK = 0.05
"""What System One lets a sum of probabilities be off by."""

_NO_BANDS: Bands = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says to answers.

    Attributes:
        action: of the strictest rule.
        rule: which decided: of equally strict ones the one furthest above its threshold, or least
            below it. None if no rule applied.
        p: the number it decided by; None if there was none.
        reason: one sentence, made of rule ids, option names and numbers alone.
        bands: to be given to the next judgement by this policy.
        degraded: an answer was missing or malformed.
        answers: the ones that were neither, by rule id.
    """

    action: Action
    rule: str | None
    p: float | None
    reason: str
    bands: dict[str, Band]
    degraded: bool = False
    answers: dict[str, Answer] = field(default_factory=dict)


class _Finding(NamedTuple):
    """What one rule says.

    Attributes:
        now: a threshold says so now, rather than what is left of an earlier time.
        margin: how far `p` is above the threshold in force, as a share of what it can be.
    """

    action: Action
    p: float | None
    now: bool
    margin: float
    reason: str


def _weight(finding: _Finding) -> tuple[int, bool, float]:
    return _STRICTNESS[finding.action], finding.now, finding.margin


def judge(
    policy: Policy,
    answers: Mapping[str, Answer] | None,
    *,
    bands: Bands = _NO_BANDS,
    tool: str | None = None,
) -> Verdict:
    """Judge answers by a policy.

    A rule with a `release` that was reviewed or blocked stays so until its number has come down; a
    reviewed one may rise to blocked. A rule that is not asked keeps its band. An answer that is
    missing or malformed is never an allow: it is the policy's `on_error`, or at least a review.

    Args:
        policy: the rules.
        answers: to `policy.questions(tool)`, by rule id.
        bands: of the last verdict by this policy about the same history.
        tool: whose call is judged, if one is.
    """
    given = answers if isinstance(answers, Mapping) else {}
    found: dict[str, _Finding] = {}
    usable: dict[str, Answer] = {}
    for rule in policy.rules_for(tool):
        answer = given.get(rule.id)
        band = bands.get(rule.id) if rule.release is not None else None
        numbers = _numbers(rule, answer)
        if answer is None or numbers is None:
            found[rule.id] = _unusable(rule, answer, band, policy.on_error)
        else:
            found[rule.id] = _find(rule, numbers, band)
            usable[rule.id] = answer
    # An answer that says nothing moves no rule out of its band, or into one.
    kept = _bands(policy, bands, {key: found[key].action for key in usable})
    if not found:
        return Verdict("allow", None, None, "No rule of the policy applies here.", kept)
    decisive = max(found, key=lambda key: _weight(found[key]))
    action, p, _, _, reason = found[decisive]
    return Verdict(action, decisive, p, reason, kept, len(usable) < len(found), usable)


def _bands(policy: Policy, before: Bands, actions: Mapping[str, Action]) -> dict[str, Band]:
    bands: dict[str, Band] = {}
    for rule in policy.rules:
        action = actions.get(rule.id, before.get(rule.id, "allow"))
        if rule.release is not None and action != "allow":
            bands[rule.id] = action
    return bands


def _numbers(rule: Rule, answer: object) -> Mapping[str | None, float] | None:
    """What the rule watches, by option; None if the answer is not one to its question."""
    match rule.question, answer:
        case Noul(), NoulAnswer(noul=p) if _within(p, 1.0):
            return {None: p}
        case Score(), ScoreAnswer(score=score) if _within(score, rule.top + _SLACK):
            return {None: score}
        case Choice(criteria=options), ChoiceAnswer(probabilities=dict() as shares) if (
            shares.keys() == options.keys()
            and all(_within(p, 1.0) for p in shares.values())
            and abs(sum(shares.values()) - 1.0) <= _SLACK
        ):
            return {**shares}
    return None


def _within(number: object, top: float) -> bool:
    # A comparison with NaN is false, so that NaN is never within.
    return isinstance(number, (int, float)) and 0 <= number <= top


def _unusable(rule: Rule, answer: object, band: Band | None, on_error: Action) -> _Finding:
    fault = "missing" if answer is None else "malformed"
    action = max("review", on_error, band or "allow", key=_STRICTNESS.__getitem__)
    reason = f"{rule.id}: its answer is {fault}, so it cannot be allowed."
    return _Finding(action, None, False, -math.inf, reason)


def _find(rule: Rule, numbers: Mapping[str | None, float], band: Band | None) -> _Finding:
    findings = [_reached(rule, limits, numbers[limits.option]) for limits in rule.limits]
    if band is not None:
        findings += [
            _held(rule, limits, numbers[limits.option], band)
            for limits in rule.limits
            if limits.release is not None and numbers[limits.option] > limits.release
        ]
    return max(findings, key=_weight)


def _reached(rule: Rule, limits: Limits, p: float) -> _Finding:
    """What the thresholds say to a number by itself."""
    limit = limits.block
    if limit is not None and p >= limit:
        return _finding(rule, "block", limits, p, limit, "is at least {}")
    if limits.review is not None:
        limit = limits.review
        if p >= limit:
            return _finding(rule, "review", limits, p, limit, "is at least {}")
    assert limit is not None, "a rule has one of them"
    return _finding(rule, "allow", limits, p, limit, "is below {}")


def _held(rule: Rule, limits: Limits, p: float, band: Band) -> _Finding:
    """What is left of an earlier time, if the number has not come down."""
    assert limits.release is not None
    past = f"has not come down to {{}} since it was {_PAST[band]}"
    return _finding(rule, band, limits, p, limits.release, past)._replace(now=False)


def _finding(
    rule: Rule, action: Action, limits: Limits, p: float, limit: float, relation: str
) -> _Finding:
    of = "" if limits.option is None else f" for {quote(limits.option)}"
    reason = f"{rule.id}: {_shown(p, limit)}{of} {relation.format(_shown(limit, p))}."
    return _Finding(action, p, True, (p - limit) / (rule.top or 1.0), reason)


def _shown(number: float, beside: float) -> str:
    """A number to four digits, unless that would hide on which side of the other it lies."""
    short = float(f"{number:.4g}")
    same = (short < beside, short > beside) == (number < beside, number > beside)
    return f"{number:.4g}" if same else repr(number)
