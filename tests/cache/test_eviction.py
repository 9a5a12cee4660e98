"""Memory under a budget: who is evicted when."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from flide_cache.codec import HEADER_BYTES, Kind
from flide_cache.host import HostStore
from flide_cache.testing import (
    load_one,
    value_of,
)
from tests.cache.support import held

if TYPE_CHECKING:
    from flide_cache.base import Value

SIZE = 1_000


def room_for(count: int, *, for_tenant: int | None = None) -> HostStore:
    """A store with room for so many values of `SIZE` bytes."""
    each = SIZE + HEADER_BYTES
    return HostStore(count * each, tenant_bytes=None if for_tenant is None else for_tenant * each)


def chain(length: int, *, tenant: str = "") -> list[Value]:
    """Pages that follow one another, and serve nothing by themselves."""
    values: list[Value] = []
    for index in range(length):
        parent = values[-1].key if values else None
        position = 256 * (index + 1)
        values.append(
            value_of(
                SIZE, kind=Kind.PAGES, seconds=0, position=position, parent=parent, tenant=tenant
            )
        )
    return values


class TestEviction:
    """Who goes first."""

    def test_what_saves_least_per_byte_goes_first(self) -> None:
        """Of equal age."""
        store = room_for(4)
        values = [value_of(SIZE, seconds=seconds) for seconds in (3, 1, 4, 2)]
        store.offer(values)
        store.offer([value_of(SIZE, seconds=9), value_of(SIZE, seconds=9)])

        assert held(store, values) == [True, False, True, False]
        assert store.stats().counts["evicted"] == 2

    def test_a_large_value_goes_before_a_small_one_that_saves_as_much(self) -> None:
        """Bytes count."""
        store = room_for(5)
        large, small = value_of(3 * SIZE, seconds=2), value_of(SIZE, seconds=1)
        store.offer([large, small])
        store.offer([value_of(SIZE, seconds=9), value_of(SIZE, seconds=9)])

        assert held(store, [large, small]) == [False, True]

    def test_what_is_never_used_goes_in_the_end(self) -> None:
        """However much it would save; what is used stays."""
        store = room_for(3)
        unused, used = value_of(SIZE, seconds=50), value_of(SIZE, seconds=1)
        store.offer([unused, used])
        for _ in range(200):
            store.offer([value_of(SIZE, seconds=1)])
            load_one(store, used.key, SIZE)

        assert held(store, [unused, used]) == [False, True]

    def test_superseded_states_go_before_all_others(self) -> None:
        """Though they would save most; a state without a session is never superseded."""
        store = room_for(4)
        old, lasting = (value_of(SIZE, seconds=90, session=name) for name in ("s", ""))
        new = value_of(SIZE, seconds=0.1, session="s")
        for value in (old, lasting, new, value_of(SIZE, seconds=0.1, session="t")):
            store.offer([value])
        store.offer([value_of(SIZE, seconds=5)])

        assert held(store, [old, lasting, new]) == [False, True, True]

    def test_sessions_of_two_tenants_are_two(self) -> None:
        """Of one name."""
        store = room_for(2)
        one, two = (
            value_of(SIZE, seconds=s, session="s", tenant=t) for s, t in ((5, "a"), (1, "b"))
        )
        store.offer([one])
        store.offer([two])
        store.offer([value_of(SIZE, seconds=9)])

        assert held(store, [one, two]) == [True, False]

    def test_a_chain_goes_from_its_tail(self) -> None:
        """Pages are not evicted before those that build on them."""
        store = room_for(6)
        values = chain(6)
        store.offer(values)
        for gone in range(1, 5):
            store.offer([value_of(SIZE, seconds=gone)])

            assert held(store, values) == [True] * (6 - gone) + [False] * gone

    def test_pages_that_a_state_needs_outlive_those_of_none(self) -> None:
        """The state and all below it stay; pages whose state went go at once."""
        store = room_for(7)
        served, orphaned = chain(3), chain(3)
        state = value_of(SIZE, seconds=5, position=768, parent=served[-1].key)
        store.offer([*orphaned, *served, state])
        store.offer([value_of(SIZE, seconds=6) for _ in range(3)])

        assert held(store, [*orphaned, *served, state]) == [False] * 3 + [True] * 4

    def test_children_may_come_before_their_parent(self) -> None:
        """And protect it from then on."""
        store = room_for(3)
        parent, child = chain(2)
        child.seconds = 5
        store.offer([child])
        store.offer([parent])
        store.offer([value_of(SIZE, seconds=1)])
        store.offer([value_of(SIZE, seconds=2)])

        assert held(store, [parent, child]) == [True, True]

    def test_a_batch_never_evicts_what_it_builds_on(self) -> None:
        """Its own members and their ancestors stay while room is made."""
        store = room_for(4)
        pages = chain(4)
        store.offer([*pages[:2], value_of(SIZE, seconds=1), value_of(SIZE, seconds=1)])
        state = value_of(SIZE, seconds=0.1, parent=pages[2].key)
        store.offer([pages[2], state])

        assert held(store, [*pages[:3], state]) == [True] * 4

    def test_too_large_is_refused_and_counted(self) -> None:
        """And costs nobody anything."""
        store = room_for(3, for_tenant=2)
        kept = value_of(SIZE)
        store.offer([kept])

        assert not store.offer([value_of(4 * SIZE)])
        assert not store.offer([value_of(SIZE, tenant="t") for _ in range(3)])
        assert held(store, [kept]) == [True]
        assert store.stats().counts["dropped:too large"] == 4

    def test_a_tenant_over_its_quota_evicts_its_own(self) -> None:
        """Though others hold what is worth less."""
        store = room_for(5, for_tenant=2)
        others = [value_of(SIZE, seconds=0, tenant="b") for _ in range(2)]
        own = [value_of(SIZE, seconds=9 + i, tenant="a") for i in range(3)]
        store.offer(others)
        for value in own:
            store.offer([value])

        assert held(store, [*others, *own]) == [True, True, False, True, True]

    @settings(deadline=None, max_examples=40)
    @given(
        sizes=st.lists(
            st.tuples(st.integers(1, 4_000), st.sampled_from("abc"), st.floats(0, 5)), max_size=60
        )
    )
    def test_budget_and_quota_hold_always(self, sizes: list[tuple[int, str, float]]) -> None:
        """After every offer, and the books agree with what is there."""
        store = HostStore(12_000, tenant_bytes=6_000)
        offered = []
        for nbytes, tenant, seconds in sizes:
            value = value_of(nbytes, tenant=tenant, seconds=seconds, session=random.choice("xy"))
            store.offer([value])
            offered.append(value)
            there = [v for v, found in zip(offered, held(store, offered), strict=True) if found]
            stats = store.stats()

            assert stats.bytes == sum(v.nbytes + HEADER_BYTES for v in there) <= 12_000
            assert stats.entries == len(there)
            for name in "abc":
                own = [v.nbytes + HEADER_BYTES for v in there if v.tenant == name]
                assert sum(own) <= 6_000
        store.clear()
        assert store.stats().bytes == 0
        assert len(store._order) == 0
