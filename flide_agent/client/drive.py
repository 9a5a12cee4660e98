"""One description of what a session does, run with or without an event loop.

A session's verbs are generators that yield calls and are sent the replies, or thrown the errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flide_agent.exceptions import FlideError

if TYPE_CHECKING:
    from collections.abc import Generator

    from flide_agent.client.calls import Call, Transport

T = TypeVar("T")

Steps: TypeAlias = "Generator[Call, Any, T]"
"""Calls out, replies in, and a result at the end."""


class Route(NamedTuple):
    """Which way the calls go, for whom, and how long each may take."""

    transport: Transport
    tenant: str | None
    timeout: float | None


def drive(steps: Steps[T], route: Route) -> T:
    """Run the steps, waiting for every reply."""
    transport, tenant, timeout = route
    try:
        call = next(steps)
        while True:
            try:
                reply = transport.send(call, tenant=tenant, timeout=timeout)
            except FlideError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(steps: Steps[T], route: Route) -> T:
    """Run the steps, awaiting every reply."""
    transport, tenant, timeout = route
    try:
        call = next(steps)
        while True:
            try:
                reply = await transport.asend(call, tenant=tenant, timeout=timeout)
            except FlideError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result
