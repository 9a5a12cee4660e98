"""A transport to an engine that notes what goes over it."""

from __future__ import annotations

from typing import Any

from flide_agent import Noul, Policy, Rule
from flide_agent.client.calls import Ask, Describe

# A random model has opinions on everything: in shadow mode they change nothing.
WATCH = Policy([Rule("odd", Noul(instructions="Is it odd?"), block=0.5)], mode="shadow", timeout=60)


class Watched:
    """A transport to the engine, and what went over it.

    Attributes:
        replies: every question with its reply.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.replies: list[tuple[str | None, Ask, Any]] = []

    def send(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        reply = self._inner.send(call, tenant=tenant, timeout=timeout)
        self._note(call, reply, tenant)
        return reply

    async def asend(self, call: Any, *, tenant: str | None, timeout: float | None) -> Any:
        reply = await self._inner.asend(call, tenant=tenant, timeout=timeout)
        self._note(call, reply, tenant)
        return reply

    def _note(self, call: Any, reply: Any, tenant: str | None) -> None:
        if isinstance(call, Ask):
            self.replies.append((tenant, call, reply))

    def watch(self, *args: Any, **kwargs: Any) -> Any:
        return self._inner.watch(*args, **kwargs)

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()

    @property
    def reasons(self) -> list[str]:
        return [reply.session.reason for _, _, reply in self.replies]

    def turns(self, number: int = -1) -> list[str]:
        """The history of a question."""
        tenant, call, reply = self.replies[number]
        described = self._inner.send(
            Describe(call.session, reply.session.head), tenant=tenant, timeout=None
        )
        turns: list[str] = described.turns
        return turns
