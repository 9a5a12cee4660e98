"""The wire format of sessions: a growing history, and questions about where it stands.

A *head* names a history: it is a digest chained over its turns (`flide_agent.history`), so every
prefix of a history has one, and equal histories have equal heads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from flide_agent.policy import Decision, Policy
from flide_agent.types import Questions, SystemOneResponse

Reason = Literal["appended", "edited", "summarised", "windowed", "expired", "new"]
"""How a history relates to the one held before it.

appended: it goes on from it, or from another branch of the session. edited: something on the way is
different or gone. summarised: earlier turns were replaced by a summary. windowed: its front is gone
and the rest goes on. expired: the session held it once and no longer did. new: the first one.
"""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]

_Count = Annotated[int, Field(ge=0)]


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class SessionInfo(_Wire):
    """Where a session stands, and what the step took.

    Attributes:
        id: the session's key.
        head: the history that was judged.
        tokens: of that history.
        new_tokens: computed in this step, questions included; after an append, tokens of what is
            new.
        reused_tokens: taken from checkpoints.
        diverged_at: how many leading turns are as before, where the history did not just go on.
        reason: how it relates to the history before it.
        source: where the reused tokens came from.
        choice: whether a checkpoint was brought up from a lower tier, and why.
    """

    id: str
    head: str
    tokens: _Count
    new_tokens: _Count = 0
    reused_tokens: _Count = 0
    diverged_at: int | None = None
    reason: Reason = "appended"
    source: str = "none"
    choice: str = ""


class Answers(SystemOneResponse):
    """Answers, or a decision and the answers it rests on, and where the session stands."""

    x_session: SessionInfo
    x_decision: Decision | None = None

    @property
    def session(self) -> SessionInfo:
        """Where the session stands, and what the step took."""
        return self.x_session


class AppendRequest(_Wire):
    """What happened since a head.

    Attributes:
        parent: the head that the messages follow; by default the session's newest.
        expected: refuse with a conflict unless this is the session's newest head.
        held: the head of the history that the caller had before, for the reason in the reply.
        messages: texts, role/content messages or any JSON, oldest first.
        whole: they and what the parent stands for are the whole history, even if a longer one is
            held that begins like it.
        summary: one of them summarises turns that are gone.
        history: what to do with a history whose front is missing: "exact" judges it as it is,
            "full" goes on from the history held whose tail it begins with.
        ttl: seconds without use after which the session may be dropped.
    """

    parent: str | None = None
    expected: str | None = None
    held: str | None = None
    messages: list[Any] = []
    whole: Annotated[bool, Field(strict=True)] = False
    summary: Annotated[bool, Field(strict=True)] = False
    history: Literal["exact", "full"] = "exact"
    ttl: Seconds | None = None


class AskRequest(AppendRequest):
    """What happened, and questions, or a policy, about the history that this makes.

    Attributes:
        questions: by id; or
        policy: the questions of its rules, and a decision.
        state: what is only true of this step, such as a pending tool call; it never becomes
            history.
        tool: the tool of the pending call, for rules about tools.
        since: judge only what came after this head, or since the "last" question.
        key: makes the request idempotent: its exact repeat gets the stored reply.
        agent: whose "last" question and bands these are, where several agents share a session.
    """

    questions: Questions | None = None
    policy: Policy | None = None
    state: Any = None
    tool: str | None = None
    since: str | None = None
    key: str | None = None
    agent: str = ""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if (self.questions is None) == (self.policy is None):
            raise ValueError("give either questions or a policy")
        return self


class SessionDescription(_Wire):
    """A session as it is held.

    Attributes:
        id: its key.
        head: its newest history, or the one asked for.
        tokens: of that history.
        turns: its texts, oldest first; None unless asked for.
        heads: how many histories are held.
    """

    id: str
    head: str
    tokens: _Count
    turns: list[str] | None = None
    heads: _Count = 0
