"""What is wrong with a rule or a policy, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from flide_agent._json import describe, quote, where
from flide_agent.types import Choice, Score

if TYPE_CHECKING:
    from pydantic import ValidationError

    from flide_agent.policy.rules import Limits, Rule

_THRESHOLDS = ("block", "review", "release")


def refuse(sentence: str) -> PydanticCustomError:
    """An error of a validator, whose message is the sentence."""
    return PydanticCustomError("policy", "{sentence}", {"sentence": sentence})


def sentence(error: ValidationError, name: str) -> str:
    """The first fault of a document or a call, as one sentence.

    Args:
        error: holds every fault.
        name: what to call the whole.
    """
    fault = error.errors(include_url=False)[0]
    path, kind, message = fault["loc"], fault["type"], fault["msg"]
    place = f"{name}: {where(path)}" if path else name
    match kind:
        case "missing":
            return f"{place}: it is missing; give one."
        case "extra_forbidden":
            return f"{place}: there is no such field; correct its name or leave it out."
        case "model_type":
            return f"{place}: {describe(fault['input'])} was given, but it must be a map."
        case "literal_error":
            expected = fault["ctx"]["expected"].replace("'", '"')
            return f"{place}: {describe(fault['input'])} was given, but it must be {expected}."
        case "policy" | "system_one":
            return f"{place}: {message}" if path else message
    return f"{place}: {describe(fault['input'])} was given; {message[0].lower()}{message[1:]}."


def rule_fault(rule: Rule) -> str | None:
    """Say why a rule could never act, or why its thresholds do not fit its question."""
    if rule.block is None and rule.review is None:
        return "it has neither block nor review, so it could never act; set one of them."
    if fault := _shape_fault(rule):
        return fault
    for limits in rule.limits:
        if fault := _range_fault(rule, limits) or _order_fault(limits) or _release_fault(limits):
            return fault
    if rule.release is not None:
        for limits in rule.limits:
            if limits.release is None:
                option = quote(limits.option or "")
                return (
                    f"release leaves out the option {option}, but a choice is released when all "
                    f"its watched options have come down; name {option} too."
                )
    return None


def _shape_fault(rule: Rule) -> str | None:
    for name in _THRESHOLDS:
        threshold = getattr(rule, name)
        if threshold is None:
            continue
        if not isinstance(rule.question, Choice):
            if isinstance(threshold, dict):
                return f"{name} is a map, but a {rule.question.type} has one number; give a number."
            continue
        options = rule.question.criteria
        if not isinstance(threshold, dict):
            return (
                f"{name} is {threshold}, but a choice has a number for every option; give a map "
                f"such as {{{quote(next(iter(options)))}: {threshold}}}."
            )
        for option in threshold:
            if option not in options:
                known = ", ".join(quote(key) for key in options)
                return f"{name} names {quote(option)}, which is no option; the options are {known}."
    return None


def _range_fault(rule: Rule, limits: Limits) -> str | None:
    for name in _THRESHOLDS:
        threshold = getattr(limits, name)
        if threshold is not None and not 0 <= threshold <= rule.top:
            what = "the score" if isinstance(rule.question, Score) else "the probability"
            return (
                f"{_named(name, limits)} is {threshold}, but {what} lies between 0 and "
                f"{rule.top:g}; give a number in that range."
            )
    return None


def _order_fault(limits: Limits) -> str | None:
    for low, high in (("review", "block"), ("release", "review"), ("release", "block")):
        below, above = getattr(limits, low), getattr(limits, high)
        if below is not None and above is not None and below > above:
            return (
                f"{_named(low, limits)} is {below} and {_named(high, limits)} is {above}, but "
                f"{low} must not be above {high}; lower {low} or raise {high}."
            )
    return None


def _release_fault(limits: Limits) -> str | None:
    if limits.block is None and limits.review is None:
        option = quote(limits.option or "")
        return (
            f"release names the option {option}, which neither block nor review names; "
            f"give {option} one of them or leave it out."
        )
    return None


def _named(threshold: str, limits: Limits) -> str:
    return threshold if limits.option is None else f"{threshold} of {quote(limits.option)}"
