"""The door of the serving side: sessions in front of an engine."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flide_agent.exceptions import FlideError, TimedOut
from flide_agent.history import ROOT
from flide_agent.runtime.asking import Asker
from flide_agent.runtime.futures import failed_promise, then, translate
from flide_agent.runtime.placing import place
from flide_agent.runtime.responses import to_response
from flide_agent.runtime.sessions import MAX_SESSIONS, Session, Sessions
from flide_agent.runtime.tree import path
from flide_agent.runtime.watches import Announcer, Watch
from flide_agent.session_types import SessionDescription, SessionInfo
from flide_engine.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from flide_agent.runtime.memory import SessionMemory
    from flide_agent.runtime.placing import Placed
    from flide_agent.session_types import Answers, AppendRequest, AskRequest
    from flide_agent.types import SystemOneRequest, SystemOneResponse
    from flide_engine.engine import Engine


class Runtime:
    """Sessions of many tenants on one engine. Safe to call from several threads.

    What takes the engine's time comes back as a promise; cancelling it before its round starts
    costs nothing.

    Args:
        engine: what answers. `close` leaves it open: it may serve others too.
        eager: whether an append is read at once, at low priority.
        max_sessions: of more, the one unused for longest goes.
        clock: seconds that only go forward, for sessions' ages.
        memory: keeps what must outlive the process; the runtime closes it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        eager: bool = True,
        max_sessions: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
        memory: SessionMemory | None = None,
    ) -> None:
        self.engine = engine
        self.model_name = engine.model_name
        self._eager = eager
        self._sessions = Sessions(
            engine.model_name, engine.begin, max_sessions=max_sessions, clock=clock
        )
        self._asker = Asker(engine)
        self._announcer = Announcer()
        self._memory = memory

    @property
    def sessions(self) -> int:
        """How many are held."""
        return len(self._sessions)

    def limit(self, *, sessions: Callable[[str], int], tokens: Callable[[str], int | None]) -> None:
        """Bound what tenants may do.

        Args:
            sessions: that a tenant may have; of more, its own unused for longest goes.
            tokens: that one of its requests may have; None for what the model can read.
        """
        self._sessions.max_of_tenant = sessions
        self._asker.max_tokens = tokens

    def system_one(
        self, request: SystemOneRequest, *, tenant: str = "", timeout: float | None = None
    ) -> Future[SystemOneResponse]:
        """Answer questions about a state, without a session.

        Raises:
            InvalidInput: the engine cannot take the request.
        """
        try:
            ask = self.engine.ask(
                request.state,
                request.questions,
                tenant=tenant,
                deadline=deadline_in(timeout),
                max_tokens=self._asker.max_tokens(tenant),
            )
        except EngineError as error:
            raise translate(error) from error
        return then(ask, lambda result: to_response(result, self.model_name))

    def append(self, tenant: str, session_id: str, request: AppendRequest) -> SessionInfo:
        """Put what happened into a session, and begin to read it.

        Raises:
            InvalidInput: a message cannot be read.
            SessionConflict: the session's newest head is not the one expected.
            SessionNotFound: the session or the parent is not held.
        """
        session = self._sessions.open(tenant, session_id, request)
        with session.tree.lock:
            self._recall(session)
            placed = place(session.tree, request)
            self._read_ahead(session, placed)
            return self._asker.info(session, placed)

    def ask(
        self, tenant: str, session_id: str, request: AskRequest, *, timeout: float | None = None
    ) -> Future[Answers]:
        """Put what happened into a session, and answer questions about where it then stands.

        The answers are those of `system_one` on the session's text, with the step-local state's
        after it.

        Raises:
            InvalidInput: a message, the state or a question cannot be read.
            KeyConflict: the key was used for something else.
            SessionConflict: the session's newest head is not the one expected.
            SessionNotFound: the session, the parent, or the head of `since` is not held.
        """
        deadline = deadline_in(timeout)
        session = self._sessions.open(tenant, session_id, request)
        with _locked(session, deadline):
            self._recall(session)
            newest = session.tree.current
            placed = place(session.tree, request)
            try:
                reply = self._asker.ask(session, placed, request, deadline)
            except BaseException:
                # What was refused did not happen.
                session.tree.select(newest)
                raise
            if session.eager is not None:
                session.eager.cancel()
            if placed.node is not placed.before:
                self._ask_standing(session, placed)
        if (memory := self._memory) is not None:
            reply.add_done_callback(lambda done: memory.note(session))
        return reply

    def watch(
        self,
        tenant: str,
        session_id: str,
        request: AskRequest,
        callback: Callable[[Answers], Any] | None = None,
    ) -> str:
        """Ask the same at every append from now on; asking it oneself is then a look-up.

        Returns:
            A name for `unwatch`.

        Raises:
            InvalidInput: a question cannot be asked.
        """
        session = self._sessions.open(tenant, session_id, request)
        name = uuid.uuid4().hex
        with session.tree.lock:
            self._asker.check(session, request)
            session.watches[name] = Watch(request, callback)
        return name

    def unwatch(self, tenant: str, session_id: str, name: str) -> None:
        """Stop asking; nothing to do where the session is not held any more."""
        session = self._sessions.find(tenant, session_id)
        if session is not None:
            with session.tree.lock:
                session.watches.pop(name, None)

    def fork(
        self, tenant: str, session_id: str, at: str | None = None, new_id: str | None = None
    ) -> SessionDescription:
        """Begin another session with a history of this one; nothing is computed or copied.

        Args:
            tenant, session_id: the session.
            at: the head to fork at; by default its newest.
            new_id: the key of the other one; by default a new one. A session of that key goes.
        """
        session = self._sessions.get(tenant, session_id)
        with session.tree.lock:
            nodes = path(session.tree.node(at) if at else session.tree.current)
            last = dict(session.last)
        with session.bands_lock:
            bands = {place: dict(held) for place, held in session.bands.items()}
        new_id = new_id or uuid.uuid4().hex
        other = self._sessions.add(tenant, new_id, session.ttl)
        with other.tree.lock:
            other.tree.adopt(nodes)
            # A fork is no way out of a band.
            other.bands.update(bands)
            other.last.update(last)
            return self._describe(other, other.tree.current.head, turns=False)

    def rewind(self, tenant: str, session_id: str, to: str) -> SessionDescription:
        """Make an earlier head the session's newest; later ones stay held for a while."""
        session = self._sessions.get(tenant, session_id)
        with session.tree.lock:
            session.tree.select(session.tree.node(to))
            return self._describe(session, to, turns=False)

    def describe(
        self, tenant: str, session_id: str, *, at: str | None = None, turns: bool = False
    ) -> SessionDescription:
        """Where a session stands, and the texts of a history if asked for."""
        session = self._sessions.get(tenant, session_id)
        with session.tree.lock:
            return self._describe(session, at or session.tree.current.head, turns=turns)

    def drop(self, tenant: str, session_id: str) -> bool:
        """Forget a session; says whether it was held."""
        if self._memory is not None:
            self._memory.forget(self._sessions.key(tenant, session_id))
        return self._sessions.drop(tenant, session_id)

    def close(self) -> None:
        """Stop calling back, and write the last records."""
        self._announcer.close()
        if self._memory is not None:
            self._memory.close()

    def _describe(self, session: Session, head: str, *, turns: bool) -> SessionDescription:
        tree = session.tree
        node = tree.node(head)
        return SessionDescription(
            id=tree.key.id,
            head=node.head,
            tokens=0 if node.head == ROOT else self._asker.tokens(node),
            turns=[n.text for n in path(node)] if turns else None,
            heads=len(tree),
        )

    def _recall(self, session: Session) -> None:
        if self._memory is not None:
            self._memory.recall(session)

    def _read_ahead(self, session: Session, placed: Placed) -> None:
        """Start computing what was appended: its standing questions, or else only its state."""
        if placed.node is placed.before:
            return
        if session.eager is not None:
            session.eager.cancel()
        if self._ask_standing(session, placed) or not self._eager:
            return
        if request := placed.node.text_so_far.request():
            session.eager = self.engine.submit(request, eager=True)

    def _ask_standing(self, session: Session, placed: Placed) -> bool:
        for watch in session.watches.values():
            try:
                reply = self._asker.ask_standing(session, placed, watch.request)
            except FlideError as error:
                # What a listener wants to know is no reason to refuse what happened.
                reply = failed_promise(error)
            self._announcer.announce(watch, reply)
        return bool(session.watches)


@contextmanager
def _locked(session: Session, deadline: float | None) -> Iterator[None]:
    """Hold a session's lock; TimedOut if others hold it until the deadline."""
    wait = -1.0 if deadline is None else max(deadline - time.monotonic(), 0.0)
    if not session.tree.lock.acquire(timeout=wait):
        raise TimedOut("there was no answer in time: the session is busy with another request.")
    try:
        yield
    finally:
        session.tree.lock.release()


def deadline_in(timeout: float | None) -> float | None:
    """The moment, on `time.monotonic`, that is so many seconds away."""
    return None if timeout is None else time.monotonic() + timeout
