"""The sessions that are held, and what each remembers besides its histories."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flide_agent.exceptions import SessionNotFound
from flide_agent.history import ROOT
from flide_agent.runtime.receipts import Receipts
from flide_agent.runtime.tree import SessionKey, SessionTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from flide_agent.policy import Bands
    from flide_agent.runtime.watches import Watch
    from flide_agent.session_types import Answers, AppendRequest
    from flide_engine.core import Outcome
    from flide_engine.formats import GrowingText

DEFAULT_TTL = 24 * 3600.0
MAX_SESSIONS = 10_000
MAX_STANDING = 64
"""Standing answers that one session keeps."""


@dataclass(eq=False)
class Session:
    """One session. Its tree's lock guards all of it but the bands.

    Those have a lock of their own: they change as answers come, which waits for nobody's reading.

    Attributes:
        tree: its histories.
        ttl: seconds without use after which it may go.
        used: when it was last used.
        receipts: replies by idempotency key.
        bands, bands_lock: of each agent and policy, the band that every rule is in.
        last: of each agent, the head that it last asked about.
        watches: standing questions.
        standing: their answers, by head and what is asked.
        eager: the reading ahead that is under way.
        recalled: whether its record was looked for.
        written: how often its record was written.
    """

    tree: SessionTree
    ttl: float
    used: float
    receipts: Receipts = field(default_factory=Receipts)
    bands: dict[tuple[str, str], Bands] = field(default_factory=dict)
    bands_lock: threading.Lock = field(default_factory=threading.Lock)
    last: dict[str, str] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)
    standing: OrderedDict[tuple[str, str], Future[Answers]] = field(default_factory=OrderedDict)
    eager: Future[Outcome] | None = None
    recalled: bool = False
    written: int = 0

    def keep_standing(self, key: tuple[str, str], reply: Future[Answers]) -> None:
        """Keep the answer to a standing question, for whoever asks it."""
        self.standing[key] = reply
        while len(self.standing) > MAX_STANDING:
            self.standing.popitem(last=False)


class Sessions:
    """All sessions, by key compared whole.

    Args:
        model: the model that judges them.
        begin: the empty text of a tenant in the engine's tokens.
        max_sessions: of more, the one unused for longest goes.
        clock: seconds that only go forward.

    Attributes:
        max_of_tenant: sessions that one tenant may have; of more, its own unused for longest goes.
    """

    def __init__(
        self,
        model: str,
        begin: Callable[[str], GrowingText],
        *,
        max_sessions: int = MAX_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._begin = begin
        self._max_sessions = max_sessions
        self.max_of_tenant: Callable[[str], int] = lambda tenant: max_sessions
        self._clock = clock
        self._lock = threading.Lock()
        self._held: OrderedDict[SessionKey, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, tenant: str, session_id: str) -> Session:
        """A session that is held.

        Raises:
            SessionNotFound: it is not, or is held no longer.
        """
        session = self.find(tenant, session_id)
        if session is None:
            raise SessionNotFound(
                f"no session {session_id!r} is held: it expired or never was; send its whole "
                "history."
            )
        return session

    def find(self, tenant: str, session_id: str) -> Session | None:
        """A session, if it is held."""
        with self._lock:
            return self._find(self.key(tenant, session_id))

    def open(self, tenant: str, session_id: str, request: AppendRequest) -> Session:
        """A session for a request that may begin it.

        Raises:
            SessionNotFound: the request goes on from a head, and the session is not held.
        """
        if request.parent not in (None, ROOT) or request.expected not in (None, ROOT):
            session = self.get(tenant, session_id)
        else:
            with self._lock:
                key = self.key(tenant, session_id)
                session = self._find(key) or self._create(key)
        if request.ttl is not None:
            session.ttl = request.ttl
        return session

    def add(self, tenant: str, session_id: str, ttl: float) -> Session:
        """A new session in place of any of that key."""
        with self._lock:
            key = self.key(tenant, session_id)
            self._held.pop(key, None)
            session = self._create(key)
        session.ttl = ttl
        return session

    def drop(self, tenant: str, session_id: str) -> bool:
        """Forget a session; says whether there was one."""
        with self._lock:
            session = self._held.pop(self.key(tenant, session_id), None)
        if session is not None and session.eager is not None:
            session.eager.cancel()
        return session is not None

    def key(self, tenant: str, session_id: str) -> SessionKey:
        """What tells the session from all others."""
        return SessionKey(tenant, session_id, self._model)

    def _find(self, key: SessionKey) -> Session | None:
        now = self._clock()
        session = self._held.get(key)
        if session is None:
            return None
        if now - session.used > session.ttl:
            del self._held[key]
            return None
        session.used = now
        self._held.move_to_end(key)
        return session

    def _create(self, key: SessionKey) -> Session:
        now = self._clock()
        for old in [k for k, s in self._held.items() if now - s.used > s.ttl]:
            del self._held[old]
        own = [k for k in self._held if k.tenant == key.tenant]
        for old in own[: max(len(own) + 1 - self.max_of_tenant(key.tenant), 0)]:
            del self._held[old]
        while len(self._held) >= self._max_sessions:
            self._held.popitem(last=False)
        tree = SessionTree(key, self._begin(key.tenant))
        session = self._held[key] = Session(tree, DEFAULT_TTL, now)
        return session
