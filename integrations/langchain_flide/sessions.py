"""Which session a run belongs to, and what is known of the sessions so far."""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from flide_agent import AsyncClient, AsyncSession, Client, InvalidInput, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

ByConfig = Callable[[RunnableConfig], str | None]
"""Reads something from the configuration of a run."""

History = Literal["full", "exact"]

MAX_KNOWN = 256
"""Sessions that a process remembers the heads of; of more, the one unused for longest goes."""

FORGOTTEN_AFTER = 60.0
"""Seconds that a session lives which nobody will ask for again."""

_log = logging.getLogger(__name__)
_S = TypeVar("_S", Session, AsyncSession)


class Place(NamedTuple):
    """Whose history it is.

    Attributes:
        session: the session's key; None for a run without one.
        tenant: whose it is; None for the one that the client stands for.
        agent: which of the agents in the session.
    """

    session: str | None
    tenant: str | None
    agent: str


class Sessions:
    """A client's sessions, found by what a run is configured with.

    Args:
        client: of either kind.
        session_key: the session's key; by default `configurable["thread_id"]`. None is no session.
        tenant: whose it is, if not the user whom a LangGraph server has authenticated.
        history: what to do with a history whose front is missing, as `Client.session` says.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        *,
        session_key: ByConfig | None = None,
        tenant: str | ByConfig | None = None,
        history: History = "exact",
    ) -> None:
        self.client = client if isinstance(client, Client) else client.to_sync()
        self.async_client = self.client.to_async()
        self._session_key = session_key or _thread_of
        self._tenant = tenant
        self._history = history
        self._known: _Known[Session] = _Known()
        self._async_known: _Known[AsyncSession] = _Known()
        self._told = False

    def place(self) -> Place:
        """Where the run that calls this belongs."""
        config = ensure_config()
        key = self._session_key(config)
        if key is None and not self._told:
            self._told = True
            _log.debug(
                "A run without configurable['thread_id'] is judged without a session: nothing is "
                "remembered of it. This is said once."
            )
        tenant = self._tenant(config) if callable(self._tenant) else self._tenant
        return Place(key, tenant or _user(), agent_of(config))

    @contextmanager
    def borrow(self, place: Place) -> Iterator[Session]:
        """A session to be used by one thread; for a run without one, one that is soon forgotten."""
        session = self._known.find(place)
        if session is None:
            session = self.client.session(**self._options(place))
        yield session
        self._known.keep(place, session)

    @contextmanager
    def aborrow(self, place: Place) -> Iterator[AsyncSession]:
        """`borrow` for an event loop."""
        session = self._async_known.find(place)
        if session is None:
            session = self.async_client.session(**self._options(place))
        yield session
        self._async_known.keep(place, session)

    def _options(self, place: Place) -> dict[str, Any]:
        if place.session is None:
            return {"ttl": FORGOTTEN_AFTER, "tenant": place.tenant}
        return {
            "session_id": place.session,
            "tenant": place.tenant,
            "agent": place.agent,
            "history": self._history,
        }


class _Known(Generic[_S]):
    """The newest session object of every place. It is never used itself, only its twins are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[Place, _S] = OrderedDict()

    def find(self, place: Place) -> _S | None:
        """An object that knows what was last known of a session."""
        with self._lock:
            held = self._held.get(place)
        return None if held is None else held.twin()

    def keep(self, place: Place, session: _S) -> None:
        """Remember what is known now."""
        if place.session is None:
            return
        with self._lock:
            self._held[place] = session
            self._held.move_to_end(place)
            while len(self._held) > MAX_KNOWN:
                self._held.popitem(last=False)


def sessions_of(decisions: Any) -> Sessions:
    """The sessions of a `SessionDecisionModel` or of a client.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(found := getattr(decisions, "sessions", None), Sessions):
        return found
    if isinstance(decisions, (Client, AsyncClient)):
        return Sessions(decisions)
    raise InvalidInput(
        f"decisions is {type(decisions).__name__}, but it must be a Client, an AsyncClient or a "
        'SessionDecisionModel; make one with Client.local("smollm2").'
    )


def agent_of(config: RunnableConfig) -> str:
    """Which agent of a thread runs: the nodes that lead to it, and its name if it has one.

    A checkpoint namespace names a node and a fresh uuid for every level; its last level is the node
    that runs and not the agent. Agents that are called by tools of one agent differ by name only.
    """
    namespace = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    levels = [level.split(":")[0] for level in namespace.split("|")[:-1]]
    path = [level for level in levels if not level.isdigit()]
    if name := config.get("metadata", {}).get("lc_agent_name"):
        path.append(name)
    return "|".join(path)


def _thread_of(config: RunnableConfig) -> str | None:
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


def _user() -> str | None:
    """The user whom a LangGraph server has authenticated."""
    # A graph that runs has imported it; where nothing has, there is no server.
    module = sys.modules.get("langgraph.runtime")
    try:
        server = module.get_runtime().server_info if module else None
    except (AttributeError, KeyError, RuntimeError):
        return None
    return None if server is None or server.user is None else str(server.user.identity)
