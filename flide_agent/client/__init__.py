"""Clients and sessions. Needs no engine: the one in this process is found by an entry point."""

from flide_agent.client.calls import Transport
from flide_agent.client.client import AsyncClient, Client
from flide_agent.client.session import AsyncSession, Session

__all__ = ["AsyncClient", "AsyncSession", "Client", "Session", "Transport"]
