"""A Redis server for all tests, and links to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from tests.cache.proxy import Proxy
from tests.cache.server import RedisServer
from tests.cache.support import PAUSE, SLOW

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
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
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may harm."""
    with RedisServer(tmp_path) as server:
        yield server
