"""Clients: the way to a serving side, and what can be asked there."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, Self

from flide_agent.client.calls import SystemOne
from flide_agent.client.drive import Route
from flide_agent.client.http import HttpTransport
from flide_agent.client.session import AsyncSession, Session
from flide_agent.exceptions import MissingExtra
from flide_agent.parsing import parse_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flide_agent.client.calls import Transport
    from flide_agent.policy import AuditSink
    from flide_agent.types import SystemOneResponse


class _Client:
    """What both kinds of client are made of.

    Args:
        base_url: a System One server, such as http://localhost:8000; by default FLIDE_BASE_URL,
            else TYPESAFE_BASE_URL.
        api_key: for that server; by default FLIDE_API_KEY or TYPESAFE_API_KEY, whichever belongs to
            the address.
        transport: another way to a serving side, instead of the two; the client closes it.
        model: who is asked, where the other side serves several.
        timeout: seconds that one question may take; None waits as long as it takes.
        audit: hears every decision.

    Raises:
        InvalidInput: there is no address, or it is none.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        transport: Transport | None = None,
        model: str = "jev-latest",
        timeout: float | None = None,
        audit: AuditSink | None = None,
    ) -> None:
        self._transport = transport or HttpTransport(base_url, api_key)
        self._timeout = timeout
        self._audit = audit
        self.model = model

    @classmethod
    def local(
        cls,
        model: Any,
        *,
        timeout: float | None = None,
        audit: AuditSink | None = None,
        **options: Any,
    ) -> Self:
        """A client of an engine in this process.

        Args:
            model: a model directory, a name such as "smollm2", or a ready `Engine`.
            timeout, audit: see the class.
            options: for `Engine.from_pretrained`: device, dtype, pool_bytes, progress and so on.

        Raises:
            MissingExtra: the engine is not installed.
            FlideError: the model cannot be loaded.
        """
        return cls(transport=_open_local(model, **options), timeout=timeout, audit=audit)

    def _call(self, state: Any, questions: Mapping[str, Any], model: str | None) -> SystemOne:
        return SystemOne(
            parse_request({"model": model or self.model, "state": state, "questions": questions})
        )

    def _route(self, tenant: str | None, timeout: float | None = None) -> Route:
        return Route(self._transport, tenant, self._timeout if timeout is None else timeout)


class Client(_Client):
    """Asks a decision model, of a server or with `Client.local` in this process.

    with Client("http://localhost:8000") as client:
        client.system_one("The build is red.", {"ok": Noul(instructions="Is it green?")})
    """

    def system_one(
        self,
        state: Any,
        questions: Mapping[str, Any],
        *,
        model: str | None = None,
        tenant: str | None = None,
        timeout: float | None = None,
    ) -> SystemOneResponse:
        """Ask about a state that is given whole.

        Args:
            state: text, or any JSON map or array.
            questions: by id.
            model: who is asked.
            tenant: whose request it is, where the transport does not say.
            timeout: seconds.

        Raises:
            InvalidInput: something breaks a rule; TooLarge if it can never fit.
            TimedOut: there was no answer in time.
            EngineUnavailable: the engine cannot answer.
        """
        route = self._route(tenant, timeout)
        reply: SystemOneResponse = self._transport.send(
            self._call(state, questions, model), tenant=tenant, timeout=route.timeout
        )
        return reply

    def session(
        self,
        session_id: str | None = None,
        *,
        tenant: str | None = None,
        system: str | None = None,
        ttl: float | None = None,
        history: Literal["exact", "full"] = "exact",
        agent: str = "",
    ) -> Session:
        """A session; nothing is sent before it is used.

        Args:
            session_id: its key, such as a thread's id; by default a new one. What the serving side
                holds under a key is shared by all who use it.
            tenant: whose it is, where the transport does not say.
            system: the system prompt, which begins every history of it.
            ttl: seconds without use after which it may be dropped.
            history: a history whose front is missing is judged as it is ("exact"), or as the end of
                the one held ("full").
            agent: tells agents apart that share the session: `since="last"` and bands are theirs.
        """
        return Session(
            self._route(tenant),
            session_id,
            system=system,
            ttl=ttl,
            history=history,
            agent=agent,
            audit=self._audit,
        )

    def to_async(self) -> AsyncClient:
        """The same client for an event loop; closing either closes both."""
        return AsyncClient(
            transport=self._transport, model=self.model, timeout=self._timeout, audit=self._audit
        )

    def close(self) -> None:
        """Close the transport."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncClient(_Client):
    """`Client` for an event loop: the same names, awaited."""

    async def system_one(
        self,
        state: Any,
        questions: Mapping[str, Any],
        *,
        model: str | None = None,
        tenant: str | None = None,
        timeout: float | None = None,
    ) -> SystemOneResponse:
        """See `Client.system_one`."""
        route = self._route(tenant, timeout)
        reply: SystemOneResponse = await self._transport.asend(
            self._call(state, questions, model), tenant=tenant, timeout=route.timeout
        )
        return reply

    def session(
        self,
        session_id: str | None = None,
        *,
        tenant: str | None = None,
        system: str | None = None,
        ttl: float | None = None,
        history: Literal["exact", "full"] = "exact",
        agent: str = "",
    ) -> AsyncSession:
        """See `Client.session`."""
        return AsyncSession(
            self._route(tenant),
            session_id,
            system=system,
            ttl=ttl,
            history=history,
            agent=agent,
            audit=self._audit,
        )

    def to_sync(self) -> Client:
        """The same client without an event loop; closing either closes both."""
        return Client(
            transport=self._transport, model=self.model, timeout=self._timeout, audit=self._audit
        )

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _open_local(model: Any, **options: Any) -> Transport:
    """The in-process transport, found by name so that a client needs no engine."""
    found = entry_points(group="flide_agent.transports", name="local")
    try:
        (entry,) = found
        open_local = entry.load()
    except (ValueError, ModuleNotFoundError) as error:
        raise MissingExtra(
            f"an engine in this process needs more than the client ({error}): "
            "run pip install 'flide-agent[engine]'."
        ) from error
    transport: Transport = open_local(model, **options)
    return transport
