"""Who goes first, and whether to restore or to compute."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flide_cache.policy import PRIORS, Admission, EvictionOrder, RestoreModel, Speed
from flide_cache.testing import value_of

WORTHS = st.floats(0, 100)


class TestAdmission:
    """What a tier takes."""

    @given(position=st.integers(0, 5_000), least=st.integers(0, 3_000))
    def test_multiples_of_the_stride_that_are_long_enough(self, position: int, least: int) -> None:
        """And nothing else."""
        taken = Admission(least_position=least).admits(value_of(1, position=position))

        assert taken == (position % 256 == 0 and position >= least)


class TestEvictionOrder:
    """GreedyDual, by tenant and over all."""

    @given(worths=st.lists(st.tuples(WORTHS, st.booleans(), st.sampled_from("abc")), max_size=40))
    def test_superseded_first_then_by_worth(self, worths: list[tuple[float, bool, str]]) -> None:
        """Of one age."""
        order = EvictionOrder()
        for index, (worth, superseded, tenant) in enumerate(worths):
            order.put(index.to_bytes(), tenant, worth, superseded=superseded)
        went = [worths[key[0]] for key in iter(order.pop, None)]

        assert [(not superseded, worth) for worth, superseded, _ in went] == sorted(
            (not superseded, worth) for worth, superseded, _ in worths
        )
        assert len(order) == 0

    @given(
        steps=st.lists(
            st.tuples(st.integers(0, 9), st.sampled_from("ab"), WORTHS, st.integers(0, 3)),
            max_size=200,
        )
    )
    def test_books_are_kept(self, steps: list[tuple[int, str, float, int]]) -> None:
        """Whatever is put, ranked anew, removed and taken."""
        order, model = EvictionOrder(), dict[bytes, str]()
        for number, tenant, worth, what in steps:
            key = bytes([number])
            if what == 0:
                order.remove(key)
                model.pop(key, None)
            elif what == 1:
                taken = order.pop(tenant)
                assert (taken is None) == (tenant not in model.values())
                if taken is not None:
                    assert model.pop(taken) == tenant
            else:
                order.put(key, tenant, worth)
                model[key] = tenant
            assert len(order) == len(model)
        assert {order.pop() for _ in range(len(order))} == set(model)
        assert order.pop() is None

    def test_ranking_anew_does_not_pile_up(self) -> None:
        """Memory stays in proportion to what is held."""
        order = EvictionOrder()
        for _ in range(10_000):
            order.put(bytes([random.randrange(8)]), "", random.random())

        assert sum(len(heap) for heap in order._heaps.values()) < 100


class TestRestoreModel:
    """By measured rates."""

    def test_priors_are_used_until_something_is_measured(self) -> None:
        """Latency, then bytes."""
        model = RestoreModel(10_000, {"redis": Speed(0.002, 1e9)})

        assert model.predicted_recompute_seconds(5_000) == pytest.approx(0.5)
        assert model.predicted_load_seconds(500_000_000, "redis") == pytest.approx(0.502)
        assert set(PRIORS) == {"host", "redis"}

    @settings(max_examples=30)
    @given(rate=st.floats(1e6, 1e10), tokens=st.floats(1e2, 1e6), prior=st.floats(1e6, 1e10))
    def test_rates_are_learnt(self, rate: float, tokens: float, prior: float) -> None:
        """Whatever was thought before, after some seconds of loads it is what was seen."""
        model = RestoreModel(prior, {"t": Speed(0.001, prior)})
        for _ in range(150):
            nbytes = random.randrange(10**7, 10**8)
            model.loaded("t", nbytes, 0.001 + nbytes / rate)
            count = random.randrange(1_000, 9_000)
            model.computed(count, count / tokens)

        assert model.predicted_load_seconds(10**8, "t") == pytest.approx(
            0.001 + 1e8 / rate, rel=0.1
        )
        assert model.predicted_recompute_seconds(1_000) == pytest.approx(1e3 / tokens, rel=0.1)

    def test_the_faster_way_is_chosen_and_said_in_words(self) -> None:
        """With a margin, over all tiers that hold a part."""
        model = RestoreModel(10_000, {"host": Speed(0, 1e10), "redis": Speed(0, 1e9)})

        load = model.choose(10_000, {"redis": 700_000_000, "host": 1_000_000_000})
        assert load.restore
        assert load.load_seconds == pytest.approx(0.8)
        assert load.recompute_seconds == pytest.approx(1.0)
        assert load.reason == (
            "loading 1,700.0 MB from redis and host takes about 0.8 s, "
            "computing 10,000 tokens about 1 s"
        )
        assert not model.choose(10_000, {"redis": 900_000_000}).restore, "the margin"
        assert not model.choose(0, {"redis": 1}).restore

    def test_what_is_too_slow_is_tried_at_times(self) -> None:
        """And when it has become fast, it is used."""
        model = RestoreModel(1_000, {"redis": Speed(0, 1e6)}, probe_every=10)
        nbytes = {"redis": 100_000_000}
        choices = [model.choose(1_000, nbytes) for _ in range(40)]

        assert sum(choice.restore for choice in choices) == 4
        probe = next(choice for choice in choices if choice.restore)
        assert probe.reason.startswith("to see if that is still so: loading 100.0 MB")
        assert probe.load_seconds > probe.recompute_seconds
        for _ in range(60):
            if model.choose(1_000, nbytes).restore:
                model.loaded("redis", nbytes["redis"], 0.1)
        assert all(model.choose(1_000, nbytes).restore for _ in range(20))

    def test_nothing_seen_is_nothing_learnt(self) -> None:
        """A load of no bytes, a pass of no tokens."""
        model = RestoreModel(1_000)
        before = (model.predicted_load_seconds(10**6, "host"), model.predicted_recompute_seconds(9))
        model.loaded("host", 0, 5.0)
        model.computed(0, 5.0)

        assert before == (
            model.predicted_load_seconds(10**6, "host"),
            model.predicted_recompute_seconds(9),
        )
