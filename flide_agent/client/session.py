"""Sessions as people use them, with and without an event loop."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from flide_agent.client.drive import Route, Steps, T, adrive, drive
from flide_agent.client.verbs import Verbs
from flide_agent.exceptions import (
    EngineUnavailable,
    FlideError,
    InvalidInput,
    KeyConflict,
    TooLarge,
)
from flide_agent.history import state_text
from flide_agent.parsing import parse_questions
from flide_agent.policy import AuditRecord, Decision, Policy, failed
from flide_agent.session_types import Answers, AskRequest, SessionInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flide_agent.client.path import Path
    from flide_agent.policy import AuditSink


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a decision is about."""

    policy: Policy
    state: Any = None
    tool: str | None = None
    began: float = field(default_factory=time.perf_counter)


class _Session:
    """What both kinds of session are made of. Not for several threads or tasks at once: make one
    object for each; objects with the same key share what the serving side holds."""

    def __init__(
        self,
        route: Route,
        session_id: str | None = None,
        *,
        system: str | None = None,
        ttl: float | None = None,
        history: Literal["exact", "full"] = "exact",
        agent: str = "",
        audit: AuditSink | None = None,
    ) -> None:
        self._route = route
        self._verbs = Verbs(session_id or uuid.uuid4().hex, system, ttl, history)
        self._agent = agent
        self._audit = audit
        self._unwatch: list[Callable[[], None]] = []

    @property
    def id(self) -> str:
        """The session's key."""
        return self._verbs.id

    @property
    def head(self) -> str:
        """The name of the history as it stands."""
        return self._verbs.path.head

    @property
    def tokens(self) -> int:
        """Tokens of the history, when last heard of."""
        return self._verbs.tokens

    @property
    def text(self) -> str:
        """The history as the model reads it: `ask` answers what `system_one` answers on this."""
        return self._verbs.path.text

    def twin(self) -> Self:
        """Another object for the same session, which knows what this one does: for use by another
        thread or task."""
        other = type(self)(self._route, self.id, agent=self._agent, audit=self._audit)
        other._verbs = self._verbs.twin()
        return other

    def _watch(
        self,
        asked: Mapping[str, Any] | Policy,
        callback: Callable[[Answers | Decision], Any] | None,
    ) -> Callable[[], None]:
        request = AskRequest(agent=self._agent, **_what(asked))
        policy = request.policy
        hear = None
        if callback is not None:
            hear = callback if policy is None else partial(self._hear, policy, callback)
        transport, tenant, _ = self._route
        stop = transport.watch(self.id, request, hear, tenant=tenant)
        self._unwatch.append(stop)
        return stop

    def _hear(self, policy: Policy, callback: Callable[[Decision], Any], answers: Answers) -> None:
        callback(self._decided(answers, _Asked(policy)))

    def _fields(
        self, asked: Mapping[str, Any] | Policy, state: Any, since: str | None, key: str | None
    ) -> dict[str, Any]:
        # As text, which is the same to every transport.
        local = None if state is None else state_text(state)
        return {**_what(asked), "state": local, "since": since, "key": key, "agent": self._agent}

    def _deciding(self, asked: _Asked, since: str | None, key: str | None) -> dict[str, Any]:
        return {**self._fields(asked.policy, asked.state, since, key), "tool": asked.tool}

    def _decided(self, answers: Answers, asked: _Asked) -> Decision:
        decision = answers.x_decision
        if decision is None:
            return self._undecided(EngineUnavailable("the reply holds no decision"), asked)
        info = answers.session
        self._write(decision, asked, info.new_tokens, info.reused_tokens)
        return decision

    def _undecided(self, error: Exception, asked: _Asked) -> Decision:
        if isinstance(error, InvalidInput) and not isinstance(error, TooLarge):
            # The policy or the call is wrong, not the engine: no mode may hide that.
            raise error
        if isinstance(error, KeyConflict):
            raise error
        decision = failed(asked.policy, error, tool=asked.tool, session=self.id, head=self.head)
        self._write(decision, asked, None, None)
        return decision

    def _write(
        self, decision: Decision, asked: _Asked, new: int | None, reused: int | None
    ) -> None:
        if self._audit is None:
            return
        self._audit.write(
            AuditRecord(
                decision=decision,
                tenant=self._route.tenant,
                new_tokens=new,
                reused_tokens=reused,
                ms=1e3 * (time.perf_counter() - asked.began),
                state=asked.state,
                questions=asked.policy.questions(asked.tool),
            )
        )

    def _stop_watching(self) -> None:
        for stop in self._unwatch:
            stop()
        self._unwatch.clear()

    def _within(self, timeout: float | None) -> Route:
        return self._route if timeout is None else self._route._replace(timeout=timeout)


class Session(_Session):
    """One agent's history, and questions about where it stands.

    with client.session("thread-7") as session:
        session.append({"role": "user", "content": "Cancel order 48213."})
        session.ask({"done": Noul(instructions="Is the task finished?")})["done"].noul
    """

    def append(self, *messages: Any, parent: str | None = None) -> SessionInfo:
        """Add what happened.

        Args:
            messages: texts (taken verbatim), role/content messages, LangChain messages, or any
                JSON.
            parent: a head to go on from, which makes a branch if something follows it already; by
                default the newest, after whatever other writers appended in the meantime.
        """
        return self._run(self._verbs.append(messages, parent))

    def sync(self, messages: Sequence[Any]) -> SessionInfo:
        """Give the whole history; only what is new of it is sent on and computed."""
        return self._run(self._verbs.sync(messages))

    def ask(
        self,
        questions: Mapping[str, Any],
        *,
        messages: Sequence[Any] | None = None,
        state: Any = None,
        since: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Answers:
        """Ask about the history.

        Args:
            questions: by id.
            messages: the whole history, as for `sync`; by default it is what was appended.
            state: what is only true of this step, such as a pending tool call; never history.
            since: a head, or "last": judge only what came after it, or after the last question.
            key: the exact repeat of a question under its key gets the stored reply.
            timeout: seconds.

        Raises:
            InvalidInput: something breaks a rule; TooLarge if it can never fit.
            KeyConflict: the key was used for something else.
            TimedOut: there was no answer in time.
            EngineUnavailable: the engine cannot answer.
        """
        steps = self._verbs.ask(messages, self._fields(questions, state, since, key))
        return drive(steps, self._within(timeout))

    def decide(
        self,
        policy: Policy,
        *,
        messages: Sequence[Any] | None = None,
        state: Any = None,
        since: str | None = None,
        key: str | None = None,
        tool: str | None = None,
    ) -> Decision:
        """Decide by a policy. Whatever goes wrong at the other end is `policy.on_error`.

        Args:
            policy: the rules.
            messages, state, since, key: as for `ask`.
            tool: the tool of the pending call; by default what `state` has as "tool" or "name".
        """
        asked = _Asked(policy, state, _tool_of(state) if tool is None else tool)
        steps = self._verbs.ask(messages, self._deciding(asked, since, key))
        try:
            answers = drive(steps, self._within(policy.timeout))
        except FlideError as error:
            return self._undecided(error, asked)
        return self._decided(answers, asked)

    def guard(self, policy: Policy) -> Callable[..., Decision]:
        """`decide` for one policy: `guard(state=call)`."""
        return partial(self.decide, policy)

    def watch(
        self,
        asked: Mapping[str, Any] | Policy,
        callback: Callable[[Answers | Decision], Any] | None = None,
    ) -> Callable[[], None]:
        """Ask questions, or decide by a policy, at every append; asking is then a look-up.

        Args:
            asked: questions by id, or a policy.
            callback: hears every `Answers`, or every `Decision`, in a thread of the transport.

        Returns:
            What stops it.
        """
        return self._watch(asked, callback)

    def fork(self, at: str | None = None) -> Session:
        """A new session with the history at a head, by default the newest; nothing is copied."""
        return self._forked(*self._run(self._verbs.fork(at)))

    def rewind(self, to: str) -> None:
        """Go back to an earlier head; what came after it is a branch then."""
        self._run(self._verbs.rewind(to))

    def close(self) -> None:
        """Let the serving side forget the session. Asking again begins it anew."""
        self._stop_watching()
        self._run(self._verbs.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _forked(self, session_id: str, path: Path) -> Session:
        other = Session(self._route, session_id, agent=self._agent, audit=self._audit)
        other._verbs = self._verbs.sibling(session_id, path)
        return other

    def _run(self, steps: Steps[T]) -> T:
        return drive(steps, self._route)


class AsyncSession(_Session):
    """`Session` for an event loop: the same names, awaited."""

    async def append(self, *messages: Any, parent: str | None = None) -> SessionInfo:
        """See `Session.append`."""
        return await self._run(self._verbs.append(messages, parent))

    async def sync(self, messages: Sequence[Any]) -> SessionInfo:
        """See `Session.sync`."""
        return await self._run(self._verbs.sync(messages))

    async def ask(
        self,
        questions: Mapping[str, Any],
        *,
        messages: Sequence[Any] | None = None,
        state: Any = None,
        since: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Answers:
        """See `Session.ask`."""
        steps = self._verbs.ask(messages, self._fields(questions, state, since, key))
        return await adrive(steps, self._within(timeout))

    async def decide(
        self,
        policy: Policy,
        *,
        messages: Sequence[Any] | None = None,
        state: Any = None,
        since: str | None = None,
        key: str | None = None,
        tool: str | None = None,
    ) -> Decision:
        """See `Session.decide`."""
        asked = _Asked(policy, state, _tool_of(state) if tool is None else tool)
        steps = self._verbs.ask(messages, self._deciding(asked, since, key))
        try:
            answers = await adrive(steps, self._within(policy.timeout))
        except FlideError as error:
            return self._undecided(error, asked)
        return self._decided(answers, asked)

    def guard(self, policy: Policy) -> Callable[..., Any]:
        """`decide` for one policy: `await guard(state=call)`."""
        return partial(self.decide, policy)

    async def watch(
        self,
        asked: Mapping[str, Any] | Policy,
        callback: Callable[[Answers | Decision], Any] | None = None,
    ) -> Callable[[], None]:
        """See `Session.watch`."""
        return await asyncio.to_thread(self._watch, asked, callback)

    async def fork(self, at: str | None = None) -> AsyncSession:
        """See `Session.fork`."""
        session_id, path = await self._run(self._verbs.fork(at))
        other = AsyncSession(self._route, session_id, agent=self._agent, audit=self._audit)
        other._verbs = self._verbs.sibling(session_id, path)
        return other

    async def rewind(self, to: str) -> None:
        """See `Session.rewind`."""
        await self._run(self._verbs.rewind(to))

    async def close(self) -> None:
        """See `Session.close`."""
        self._stop_watching()
        await self._run(self._verbs.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        return await adrive(steps, self._route)


def _what(asked: Mapping[str, Any] | Policy) -> dict[str, Any]:
    if isinstance(asked, Policy):
        return {"policy": asked}
    return {"questions": parse_questions(asked)}


def _tool_of(state: Any) -> str | None:
    """The name of a pending call, as tools' calls are usually written.

    Raises:
        InvalidInput: it looks like a call, or several, but of which tool cannot be told.
    """
    calls = getattr(state, "tool_calls", None)
    if isinstance(state, dict):
        calls = state.get("tool_calls")
    if calls is None and isinstance(state, (list, tuple)) and any(map(_is_call, state)):
        calls = state
    if not calls and not _is_call(state):
        return None
    names = {_name_of(call) for call in (calls or [state])}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        raise InvalidInput(
            "the state looks like a tool call, but not of one tool alone: judge every call by "
            "itself, and give its tool's name as tool=."
        )
    return name


def _is_call(state: Any) -> bool:
    return isinstance(state, dict) and any(key in state for key in ("tool", "name", "function"))


def _name_of(call: Any) -> str | None:
    if not isinstance(call, dict):
        return None
    function = call.get("function")
    within = function.get("name") if isinstance(function, dict) else function
    found = [name for name in (call.get("tool"), call.get("name"), within) if name is not None]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else None
