"""Rules and policies: which questions guard an agent, and where their answers become actions.

Thresholds apply to the probability of yes, to the probability of an option, or to the expectation
of a score; never to `confidence`, which every provider computes in its own way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from flide_agent._json import describe, json_fault, load_json, quote
from flide_agent.exceptions import InvalidInput
from flide_agent.policy._faults import refuse, rule_fault, sentence
from flide_agent.types import Choice, Noul, Question, Score

Action = Literal["allow", "review", "block"]
Band = Literal["review", "block"]

_LARGE = 1e9
"""Above every threshold and every time that anybody waits."""


def _named(value: object) -> object:
    if not isinstance(value, str) or not value:
        raise refuse(f"{describe(value)} was given, but it must be a name.")
    if fault := json_fault(value):
        raise refuse(f"{fault}.")
    return value


def _threshold(value: object) -> object:
    if not isinstance(value, Mapping):
        return value if value is None else _number(value)
    if not value:
        raise refuse("the map is empty; name an option, or leave it out.")
    if fault := json_fault(dict.fromkeys(value)):
        raise refuse(f"{fault}.")
    # Sorted, because the order of thresholds decides nothing and so must not change the digest.
    return {option: _number(value[option]) for option in sorted(value)}


def _number(value: object) -> float:
    # Bounded before it is converted: an integer may be too large for a float.
    if not _is_number(value) or not -_LARGE < value < _LARGE:
        raise refuse(
            f"{describe(value)} is no threshold; give a number, or for a choice a map from option "
            'to number, such as {"chargeback": 0.5}.'
        )
    return value + 0.0  # 1 and 1.0 are one threshold, and so are 0.0 and -0.0.


def _patterns(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise refuse(
            f"{describe(value)} was given, but tools are a list of name patterns such as "
            '["refund_*"].'
        )
    if not value:
        raise refuse(
            "the list is empty, so the rule would never be asked; leave it out to ask always, or "
            'give ["*"] for every tool call.'
        )
    for pattern in value:
        _named(pattern)
    return tuple(value)


def _listed(value: object) -> object:
    # A set would have an order of its own every time, and the order of rules breaks ties.
    if not isinstance(value, (list, tuple)):
        raise refuse(f"{describe(value)} was given, but it must be a list.")
    return value


def _seconds(value: object) -> object:
    if not _is_number(value) or not 0 < value < _LARGE:
        raise refuse(f"{describe(value)} was given, but it must be a number of seconds above 0.")
    return value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# A field that is not known could have changed a decision, so it is refused and not ignored.
_STRICT = ConfigDict(frozen=True, extra="forbid")

_Threshold = Annotated[float | dict[str, float] | None, BeforeValidator(_threshold)]


class Limits(NamedTuple):
    """Where one number of an answer becomes an action.

    Attributes:
        option: whose probability it is, for a choice.
        block: from here on, block.
        review: from here on, review.
        release: what was reviewed or blocked stays so until the number is down here.
    """

    option: str | None
    block: float | None
    review: float | None
    release: float | None


class Rule(BaseModel):
    """A question, and where its answer becomes an action.

    Attributes:
        id: names the rule and its answer; the model never sees it.
        question: a `Noul`, `Choice` or `Score`.
        block: block from this number on: a probability of yes, or the expectation of a score. For a
            choice, a map from option to that option's probability.
        review: let a person look from this number on.
        release: hysteresis: once reviewed or blocked, stay so until the number has come down to
            this one; of a choice, until all options it watches have. None turns it off.
        tools: patterns as of a shell, where case counts: ask only about calls of these tools. None
            asks always, `["*"]` about every tool call.
    """

    model_config = _STRICT

    id: Annotated[str, BeforeValidator(_named)]
    question: Question
    block: _Threshold = None
    review: _Threshold = None
    release: _Threshold = None
    tools: Annotated[tuple[str, ...] | None, BeforeValidator(_patterns)] = None

    def __init__(
        self,
        id: str,
        question: Noul | Choice | Score,
        *,
        block: float | Mapping[str, float] | None = None,
        review: float | Mapping[str, float] | None = None,
        release: float | Mapping[str, float] | None = None,
        tools: Sequence[str] | None = None,
    ) -> None:
        """Check and make a rule.

        Raises:
            InvalidInput: the rule could never act, or its thresholds do not fit the question.
        """
        try:
            super().__init__(
                id=id,
                question=question,
                block=block,
                review=review,
                release=release,
                tools=tools,
            )
        except ValidationError as error:
            raise InvalidInput(sentence(error, f"the rule {quote(str(id))}")) from error

    # Documents are read by the fields, so that one without an id is an error of the document.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        if fault := rule_fault(self):
            raise refuse(f"the rule {quote(self.id)}: {fault}")
        return self

    @property
    def limits(self) -> list[Limits]:
        """The numbers that the rule watches, a choice's in the order of its options."""
        given = (self.block, self.review, self.release)
        if not isinstance(self.question, Choice):
            return [Limits(None, *(None if isinstance(t, dict) else t for t in given))]
        maps = [t if isinstance(t, dict) else {} for t in given]
        watched = [option for option in self.question.criteria if any(option in m for m in maps)]
        return [Limits(option, *(m.get(option) for m in maps)) for option in watched]

    @property
    def top(self) -> float:
        """The largest number that an answer can have."""
        return len(self.question.criteria) - 1.0 if isinstance(self.question, Score) else 1.0

    def applies_to(self, tool: str | None) -> bool:
        """Whether the rule is asked, about a call of this tool or without a call."""
        if self.tools is None:
            return True
        return tool is not None and any(fnmatchcase(tool, pattern) for pattern in self.tools)


class Policy(BaseModel):
    """What an agent may do: rules, and what to do when they cannot be asked.

    Attributes:
        rules: of several that act, the strictest decides.
        on_error: the action when there is no answer. A wrong answer is reviewed at the least.
        mode: "shadow" decides and records as "enforce" does, and allows.
        timeout: seconds to wait for a decision.
    """

    model_config = _STRICT

    rules: Annotated[tuple[Rule, ...], BeforeValidator(_listed)]
    on_error: Action = "block"
    mode: Literal["enforce", "shadow"] = "enforce"
    timeout: Annotated[float, BeforeValidator(_seconds)] = 1.0

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        on_error: Action = "block",
        mode: Literal["enforce", "shadow"] = "enforce",
        timeout: float = 1.0,
    ) -> None:
        """Check and make a policy.

        Raises:
            InvalidInput: there are no rules, two have the same id, or a setting is unknown.
        """
        try:
            super().__init__(rules=rules, on_error=on_error, mode=mode, timeout=timeout)
        except ValidationError as error:
            raise InvalidInput(sentence(error, "the policy")) from error

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        if not self.rules:
            raise refuse("the policy has no rules, so it could never act; give it at least one.")
        ids = [rule.id for rule in self.rules]
        for key in ids:
            if (count := ids.count(key)) > 1:
                raise refuse(
                    f"the policy has {count} rules with the id {quote(key)}; give each its own."
                )
        return self

    @property
    def digest(self) -> str:
        """64 hexadecimal digits that name everything in the policy which can change a decision.

        It is the SHA-256 of the policy's JSON with the fields in one order, so it does not depend
        on how a document orders fields or thresholds. The order of rules, of a choice's options and
        of maps in instructions counts: the first breaks ties, the model reads the others. Which
        model is asked is not in it: a record of a decision names both.
        """
        content = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()

    def rules_for(self, tool: str | None = None) -> list[Rule]:
        """The rules that are asked, about a call of this tool or without a call."""
        return [rule for rule in self.rules if rule.applies_to(tool)]

    def questions(self, tool: str | None = None) -> dict[str, Question]:
        """The questions to ask, by rule id; none if no rule applies."""
        return {rule.id: rule.question for rule in self.rules_for(tool)}


def parse_policy(policy: str | bytes | Mapping[str, Any]) -> Policy:
    """Read a policy that somebody wrote as a document.

    Args:
        policy: JSON, or what it parses to.

    Raises:
        InvalidInput: it breaks a rule of the format.
    """
    content = load_json(policy, "the policy") if isinstance(policy, (str, bytes)) else policy
    if isinstance(content, Mapping):
        content = dict(content)
    try:
        return Policy.model_validate(content)
    except ValidationError as error:
        raise InvalidInput(sentence(error, "the policy")) from error
