"""What a Redis server is asked to do, and how."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import pytest

from flide_cache.codec import HEADER_BYTES, Kind
from flide_cache.link import RedisLink, _packer
from flide_cache.manifest import (
    PART_BYTES,
    WINDOW_BYTES,
    Manifest,
    Names,
    windows,
)
from flide_cache.redis import RedisStore
from flide_cache.testing import load_one, put, value_of
from tests.cache.server import RedisServer
from tests.cache.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(link: RedisLink) -> Iterator[RedisStore]:
    """An empty store."""
    with RedisStore(link) as store:
        yield store


class TestCommands:
    """What the server is asked to do."""

    def test_only_commands_that_every_server_has(
        self, store: RedisStore, server: RedisServer
    ) -> None:
        """Of one key each: Redis 6.2 and later, Valkey, clusters."""
        server.client.config_resetstat()
        _use_everything(store)

        used = {name.removeprefix("cmdstat_") for name in server.info("commandstats")}
        assert used - {"info", "config", "config|resetstat"} <= {
            "get", "set", "pttl", "expire", "unlink", "scan", "ping", "hello",
        }  # fmt: skip

    def test_a_server_in_cluster_mode(self, tmp_path: Path) -> None:
        """Which refuses every command on keys of two slots."""
        with RedisServer(tmp_path, cluster_enabled="yes") as server:
            server.client.cluster("ADDSLOTS", *range(16_384))
            eventually(lambda: server.client.cluster("INFO")["cluster_state"] == "ok")
            with RedisLink(server.url, timeout=5) as link, RedisStore(link) as store:
                _use_everything(store)

                assert not [what for what in store.stats().counts if what.startswith("failed")]

    def test_a_user_who_may_do_little(self, server: RedisServer) -> None:
        """The commands that the documentation names are enough."""
        server.client.acl_setuser(
            "engine",
            enabled=True,
            reset=True,
            passwords=["+p@ss:w/rd"],
            keys=["fc1:*"],
            commands=["+get", "+set", "+pttl", "+expire", "+unlink", "+scan", "+ping"],
        )
        url = f"redis://engine:p%40ss%3Aw%2Frd@127.0.0.1:{server.port}/0"
        with RedisLink(url, timeout=5) as link, RedisStore(link) as store:
            _use_everything(store)

            assert not [what for what in store.stats().counts if what.startswith("failed")]
        server.client.acl_deluser("engine")

    def test_windows_are_bounded(self) -> None:
        """The server holds a window of replies in memory for each connection."""
        pieces = Names("x").pieces(bytes(32), Manifest(Kind.STATE, 0, 100 << 20, 0.0, bytes(16)))
        sizes = [
            sum(piece.label.nbytes + HEADER_BYTES for piece in window)
            for window in windows(pieces, lambda piece: piece.label.nbytes)
        ]

        assert max(sizes) <= WINDOW_BYTES
        assert len(sizes) == 13
        assert [len(window) for window in windows(range(600), lambda _: 0)] == [256, 256, 88]

    def test_the_packer_does_not_copy_values(self) -> None:
        """Redis then reads them straight into place: several times faster over TCP."""
        value = secrets.token_bytes(PART_BYTES)
        packed = _packer().pack("SET", "name", value, "EX", 10)  # type: ignore[no-untyped-call]

        assert any(piece is value for piece in packed)


def _use_everything(store: RedisStore) -> None:
    values = [value_of(nbytes) for nbytes in (10, 1_200_000, 3_000_000)]
    put(store, *values)
    put(store, *values)
    assert [load_one(store, v.key, v.nbytes) for v in values] == [bytes(v.payload) for v in values]
    assert None not in store.lookup([value.key for value in values])
    store.discard([values[1].key])
    assert store.flush(time.monotonic() + 5)
    assert store.lookup([values[1].key]) == [None]
    assert store.clear()
