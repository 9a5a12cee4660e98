"""Session records: right, bounded, and alive after a crash."""

from __future__ import annotations

import json
import math
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flide_cache.link import RedisLink
from flide_cache.records import Record, RecordId, Records
from tests.cache import proxy as ways
from tests.cache.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cache.server import RedisServer

SECRET = secrets.token_bytes(32)
WHO = RecordId("tenant", "session", "model", 1)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest, link: RedisLink) -> Callable[..., Records]:
    """Makes records in memory, or shared through Redis too."""

    def make(**options: Any) -> Records:
        return Records(SECRET, link=link if request.param == "redis" else None, **options)

    return make


class TestRecords:
    """In memory and with Redis."""

    @given(document=PLAIN, counter=st.integers(0, 2**40))
    def test_plain_data_comes_back(self, document: Any, counter: int) -> None:
        """Equal, type by type, and nobody's change to it is stored."""
        records = Records(SECRET)
        assert records.put(WHO, document, counter)
        found = records.get(WHO)
        assert found == Record(counter, document)
        if isinstance(found.document, (list, dict)):
            found.document.clear()

        assert records.get(WHO) == Record(counter, document)
        assert "failed:unexpected" not in records.stats().counts

    def test_the_last_writer_wins(self, make: Callable[..., Records]) -> None:
        """Whatever is there."""
        records = make()
        assert records.get(WHO) is None
        for counter, document in ((1, {"heads": ["a"]}), (2, [1, 2.5, None]), (3, "text")):
            assert records.put(WHO, document, counter)
            assert records.get(WHO) == Record(counter, document)
        assert records.delete(WHO)
        assert records.get(WHO) is None
        assert records.delete(WHO)

    def test_every_part_of_a_name_counts(self, make: Callable[..., Records]) -> None:
        """Also where their concatenations are equal."""
        records = make()
        names = [
            RecordId("t", "s", "m", 1),
            RecordId("ts", "", "m", 1),
            RecordId("", "ts", "m", 1),
            RecordId("t", "sm", "", 1),
            RecordId("t", "s", "m", 2),
            RecordId("t", "s", "m1", 1),
            RecordId("m", "s", "t", 1),
        ]
        for counter, name in enumerate(names):
            records.put(name, list(name), counter)

        assert [records.get(name) for name in names] == [
            Record(counter, list(name)) for counter, name in enumerate(names)
        ]

    @pytest.mark.parametrize("document", [{1: 2}, object(), {"a": {3}}, 2**70, [RecordId]])
    def test_what_is_not_plain_data_is_an_error(self, document: Any) -> None:
        """The caller's: nothing is stored."""
        records = Records(SECRET)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            records.put(WHO, document, 1)
        assert records.get(WHO) is None

    def test_a_long_document_is_refused(self, make: Callable[..., Records]) -> None:
        """And counted; the one before it stays."""
        records = make(document_bytes=1_000)
        assert records.put(WHO, "x" * 900, 1)
        assert not records.put(WHO, "x" * 1_000, 2)

        assert records.get(WHO) == Record(1, "x" * 900)
        assert records.stats().counts["dropped:too large"] == 1

    def test_memory_is_bounded(self) -> None:
        """The ones written longest ago go."""
        records = Records(SECRET, budget_bytes=5_000)
        names = [WHO._replace(session=str(number)) for number in range(40)]
        for name in names:
            records.put(name, "y" * 400, 1)
            assert records.stats().bytes <= 5_000
        alive = [name for name in names if records.get(name)]

        assert alive == names[-len(alive) :]
        assert len(alive) == records.stats().entries > 8

    def test_documents_expire(self) -> None:
        """After their time, counted from the last time they were written."""
        clock = Clock()
        records = Records(SECRET, ttl_seconds=100, clock=clock)
        records.put(WHO, 1, 1)
        clock.now = 90
        records.put(WHO, 2, 2)
        clock.now = 189
        assert records.get(WHO) == Record(2, 2)
        clock.now = 190
        assert records.get(WHO) is None
        assert (records.stats().entries, records.stats().bytes) == (0, 0)


def stored(server: RedisServer, name: bytes) -> bytes:
    """What lies in the server."""
    blob = server.client.get(name)
    assert isinstance(blob, bytes)
    return blob


class TestShared:
    """Through Redis."""

    def test_another_process_sees_the_newest(self, server: RedisServer) -> None:
        """Also if it has an older copy in memory, and after a restart."""
        with RedisLink(server.url, timeout=5) as here, RedisLink(server.url, timeout=5) as there:
            one, two = Records(SECRET, link=here), Records(SECRET, link=there)
            one.put(WHO, "first", 1)
            assert two.get(WHO) == Record(1, "first")
            two.put(WHO, "second", 2)
            assert one.get(WHO) == Record(2, "second")
            one.put(WHO, "third", 3)
            two.put(WHO, "also third", 3)

            assert one.get(WHO) == Record(3, "also third"), "the last writer"
            assert Records(SECRET, link=here).get(WHO) == Record(3, "also third")

    def test_redis_holds_it_for_its_time_and_in_secret(self, server: RedisServer) -> None:
        """One key, that expires and names nobody; another secret does not find it."""
        with RedisLink(server.url, timeout=5) as link:
            Records(SECRET, link=link, ttl_seconds=50).put(WHO, {"heads": []}, 1)
            (name,) = server.client.scan_iter()

            assert name.startswith(b"fc1:r:")
            assert b"session" not in name + stored(server, name)
            assert 48 <= server.client.ttl(name) <= 50
            assert Records(secrets.token_bytes(32), link=link).get(WHO) is None

    def test_harm_and_swaps_are_found(self, server: RedisServer) -> None:
        """A record of another session, a flipped bit, a cut: none of it is read."""
        other = WHO._replace(tenant="other")
        with RedisLink(server.url, timeout=5) as link:
            writer = Records(SECRET, link=link)
            writer.put(WHO, ["mine"], 1)
            (mine,) = server.client.scan_iter()
            writer.put(other, ["theirs"], 1)
            (theirs,) = set(server.client.scan_iter()) - {mine}
            whole, foreign = stored(server, mine), stored(server, theirs)
            bad = [foreign, whole[:-1], whole[:10], b"", whole + b"x"]
            for place in range(len(whole)):
                flipped = bytearray(whole)
                flipped[place] ^= 1 << (place % 8)
                bad.append(bytes(flipped))
            for blob in bad:
                server.client.set(mine, blob)
                reader = Records(SECRET, link=link)
                assert reader.get(WHO) is None
                counts = reader.stats().counts
                assert counts.get("failed:damaged", 0) + counts.get("failed:foreign", 0) == 1

    def test_without_redis_memory_serves(self, server: RedisServer) -> None:
        """Cut, slow or away: the copy in memory, soon, and no exception."""
        with Proxy(server.port) as net, RedisLink(net.url, timeout=1, pause=0.1) as link:
            records = Records(SECRET, link=link)
            assert records.put(WHO, "kept", 4)
            net.down = ways.cut_after(0)
            net.cut()
            assert records.get(WHO) == Record(4, "kept")
            assert not records.put(WHO, "newer", 5)
            assert records.get(WHO) == Record(5, "newer")
            assert not records.delete(WHO._replace(session="x"))
            assert "failed:unexpected" not in records.stats().counts
            net.down = ways.clear
            net.cut()

            assert records.get(WHO) == Record(5, "newer"), "newer than what Redis has"


def test_json_like_documents_keep_their_types(make: Callable[..., Records]) -> None:
    """As sessions write them: what JSON can say, and bytes."""
    document = json.loads('{"heads": {"a": [1, 2.5, true, null, "ü"]}, "n": -3}')
    document["digest"] = bytes(range(32))
    document["inf"] = math.inf
    records = make()
    records.put(WHO, document, 1)
    found = records.get(WHO)

    assert found is not None
    assert found.document == document
    assert repr(found.document) == repr(document)
