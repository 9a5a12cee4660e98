"""Decisions: what an agent is told to do, why, and what is needed to account for it later."""

import dataclasses
import uuid
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from flide_agent.exceptions import InvalidInput
from flide_agent.policy._faults import sentence
from flide_agent.policy.judging import Verdict
from flide_agent.policy.rules import Action, Policy
from flide_agent.types import Answer

_SENTENCE = 300
"""Characters of an error's message that a reason takes in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an agent is told to do. True if it may go on.

    Attributes:
        action: to be taken.
        rule: the rule that decided.
        p: the number it decided by.
        answers: that the decision rests on, by rule id; None if nobody could be asked.
        reason: one sentence for people.
        degraded: an answer was missing or malformed, or nobody could be asked.
        shadow: the policy only watches, so the action is "allow" whatever `would` is.
        replayed: this is an earlier decision about the same thing.
        id: of this decision and its replays.
        would: the action of a policy that enforces.
        error: the kind of error, if nobody could be asked. Only then does `reason` hold words that
            are not the policy's own: those of the error.
        policy: the digest of the policy.
        model: who was asked.
        session: about whose history.
        head: the history.
        tool: whose call was judged.
    """

    action: Action
    rule: str | None
    p: float | None
    answers: dict[str, Answer] | None
    reason: str
    degraded: bool
    shadow: bool
    replayed: bool = False
    id: str
    would: Action
    error: str | None = None
    policy: str
    model: str | None = None
    session: str | None = None
    head: str | None = None
    tool: str | None = None

    def __bool__(self) -> bool:
        return self.action == "allow"

    def to_json(self) -> str:
        """The decision as JSON, to be read by `from_json`."""
        return _DECISION.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Decision":
        """Read a decision that was stored.

        Raises:
            InvalidInput: it is not one.
        """
        try:
            return _DECISION.validate_json(text)
        except ValidationError as error:
            raise InvalidInput(sentence(error, "the decision")) from error


_DECISION = TypeAdapter(Decision)


def decided(
    policy: Policy,
    verdict: Verdict,
    *,
    tool: str | None = None,
    model: str | None = None,
    session: str | None = None,
    head: str | None = None,
) -> Decision:
    """Make a decision of a verdict, with an id of its own."""
    shadow = policy.mode == "shadow"
    return Decision(
        action="allow" if shadow else verdict.action,
        rule=verdict.rule,
        p=verdict.p,
        answers=verdict.answers,
        reason=verdict.reason,
        degraded=verdict.degraded,
        shadow=shadow,
        id=uuid.uuid4().hex,
        would=verdict.action,
        policy=policy.digest,
        model=model,
        session=session,
        head=head,
        tool=tool,
    )


def failed(
    policy: Policy,
    error: BaseException,
    *,
    tool: str | None = None,
    model: str | None = None,
    session: str | None = None,
    head: str | None = None,
) -> Decision:
    """The decision when nobody could be asked: the policy's `on_error`."""
    kind = type(error).__name__
    reason = unasked(kind, " ".join(str(error).split())[:_SENTENCE])
    verdict = Verdict(policy.on_error, None, None, reason, {}, degraded=True)
    decision = decided(policy, verdict, tool=tool, model=model, session=session, head=head)
    return dataclasses.replace(decision, answers=None, error=kind)


def unasked(kind: str, message: str = "") -> str:
    """The reason of a decision without answers: the kind of error, and what it says."""
    return f"The engine could not be asked ({kind}){': ' if message else '.'}{message}"
