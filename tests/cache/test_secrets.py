"""Passwords and certificates."""

from __future__ import annotations

import secrets
import ssl
import time
from typing import TYPE_CHECKING

import pytest
import trustme

from flide_cache.link import RedisLink
from flide_cache.redis import RedisStore
from flide_cache.testing import put, value_of
from tests.cache import proxy as ways
from tests.cache.proxy import Proxy
from tests.cache.support import counted, eventually, right_or_none

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cache.server import RedisServer


class TestSecrets:
    """Passwords and certificates."""

    @pytest.mark.parametrize("user", ["default", "nobody"])
    def test_a_wrong_password_is_a_miss_and_is_told_once(
        self, own: RedisServer, caplog: pytest.LogCaptureFixture, user: str
    ) -> None:
        """And is not tried again for a while; nothing that is printed holds it."""
        own.client.config_set("requirepass", "right")
        wrong = secrets.token_hex(8)
        url = f"redis://{user}:{wrong}@127.0.0.1:{own.port}"
        with RedisLink(url, timeout=5) as link, RedisStore(link, drain_seconds=0) as store:
            assert right_or_none(store, [value_of(10)]) == 0
            store.offer([value_of(10)])
            eventually(lambda: counted(store, "failed:refused") == 1)
            assert 50 < store.stats().paused_seconds <= 60
            shown = f"{link!r} {store!r} {store.stats()!r} {caplog.text}"
        assert "WRONGPASS" in shown or "invalid username-password" in shown
        assert wrong not in shown

    @pytest.mark.parametrize(
        "url",
        [
            "redis://user:p#a/ss@host:6379",
            "redis://user:hunter2@host:port",
            "http://user:hunter2@host",
            "hunter2",
            "redis://:hunter2@",
            "redis://user:hunter2@host?decode_responses=True",
            "redis://user:hunter2@host?socket_timeout=9",
        ],
    )
    def test_an_address_that_cannot_be_read_is_not_printed(self, url: str) -> None:
        """A sentence that helps, without what may be a password."""
        with pytest.raises(ValueError, match="the address of Redis") as raised:
            RedisLink(url)

        assert "hunter2" not in str(raised.value)
        assert "a/ss" not in str(raised.value)
        assert raised.value.__cause__ is None

    def test_tls(self, server: RedisServer, tmp_path: Path) -> None:
        """By the address alone: a server that the given authority vouches for, and no other."""
        authority, stranger = trustme.CA(), trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        for name, some in (("ours", authority), ("other", stranger)):
            some.cert_pem.write_to_path(str(tmp_path / name))
        value = value_of(2_500_000)
        with Proxy(server.port, context) as net:
            ours = f"{net.url}?ssl_ca_certs={tmp_path / 'ours'}"
            other = f"{net.url}?ssl_ca_certs={tmp_path / 'other'}"
            with RedisLink(ours, timeout=5) as link, RedisStore(link) as store:
                put(store, value)
                assert right_or_none(store, [value]) == 1
                net.down = ways.throttled(len(value.payload) * 2)
                began = time.monotonic()
                assert right_or_none(store, [value], began + 0.1) == 0
                assert time.monotonic() - began < 0.6
                net.down = ways.clear
            with RedisLink(other, timeout=5) as link, RedisStore(link) as store:
                assert right_or_none(store, [value]) == 0
                assert counted(store, "failed:unreachable") == 1
