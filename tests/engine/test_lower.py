"""Tiers below the device: what goes down comes up again, bit for bit, and only where it pays."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from flide_cache import Admission, HostStore, RestoreModel, Speed, Tier, TieredStore
from flide_engine.blocks import block_digests
from flide_engine.core import GRID, Outcome
from flide_engine.engine import Engine
from flide_engine.lower import Tiers
from flide_engine.marks import MARGIN
from flide_engine.parts import Parts
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flide_cache import CheckpointStore
    from flide_engine.core import Request

QUESTIONS = {"ok": {"type": "noul", "instructions": "Is it so?"}}
TEXT = "The agent looked at the file, and found that it was broken. " * 40
SECRET = b"a secret of sixteen bytes or so"
FAST, SLOW = 1e9, 1e3
"""Bytes a second that loading is thought to give: then it always pays, or never."""


@pytest.fixture(scope="module", params=[("llama", "tied"), ("qwen3_5", "tied")], ids=lambda p: p[0])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random chat model of each family."""
    return chat_model(tmp_path_factory.mktemp(request.param[0]), *request.param)


@pytest.fixture
def store() -> Iterator[CheckpointStore]:
    """Memory below the device."""
    with TieredStore([Tier(HostStore(1 << 30))]) as store:
        yield store


@pytest.fixture
def start(directory: Path, store: CheckpointStore) -> Iterator[Callable[..., Engine]]:
    """Starts engines on the one store."""
    engines = []

    def start(speed: float = FAST, **options: Any) -> Engine:
        model = RestoreModel(1_000, {"host": Speed(1e-5, speed)})
        kept, secret = options.pop("store", store), options.pop("secret", SECRET)
        tiers = Tiers(kept, model, secret, options.pop("audit", 0.0))
        engines.append(Engine.from_pretrained(directory, dtype="float64", tiers=tiers, **options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def settled(engine: Engine) -> None:
    """Wait until what goes down is down."""
    engine._serving._lower._offering.submit(lambda: None).result()  # type: ignore[union-attr]


def ask(engine: Engine, text: str, tenant: str = "") -> tuple[Any, Any]:
    """An answer, and what it took."""
    result = engine.decide(text, QUESTIONS, tenant=tenant)
    return result.answers["ok"], result.reuse


def test_another_engine_goes_on(start: Callable[..., Engine]) -> None:
    """A new process finds what an old one left, down to the last multiple of 256."""
    first = start()
    expected, _ = ask(first, TEXT)
    settled(first)
    answer, reuse = ask(start(), TEXT)
    tokens = len(first.plan(TEXT, QUESTIONS).trunk)

    assert reuse.source == "host"
    assert reuse.reused_tokens >= (tokens - 8) // 256 * 256 - 256
    assert reuse.choice.startswith("restored: loading")
    assert answer.noul == pytest.approx(expected.noul, abs=1e-10)


def test_bits_are_those_of_the_device(start: Callable[..., Engine]) -> None:
    """A checkpoint that went down and came up is the one that the device holds."""
    first, second = start(), start()
    # Where the last checkpoint is at a multiple of 256, the device keeps it as well.
    text = next(TEXT[:n] for n in range(2000, 2256) if live(first, TEXT[:n]) % 256 == 0)
    ask(first, text)
    settled(first)
    ask(second, text)
    one, other = (deepest(engine, text) for engine in (first, second))

    assert one.keys() == other.keys()
    assert one["pages"].numel() == live(first, text) // GRID * first.pool.page_bytes
    assert all(torch.equal(one[name], other[name]) for name in one)


def digests(request: Request) -> list[bytes]:
    """Of all full blocks of a trunk."""
    return block_digests(request.tenant, request.trunk, len(request.trunk) // GRID)


def live(engine: Engine, text: str) -> int:
    """Where a pass leaves its deepest checkpoint."""
    durable = engine.plan(text, QUESTIONS).durable
    assert durable is not None
    return (durable - MARGIN) // GRID * GRID


def deepest(engine: Engine, text: str) -> dict[str, torch.Tensor]:
    """The bytes of the deepest checkpoint."""
    parts = Parts(engine.storage)
    request = engine.plan(text, QUESTIONS)
    matched = engine.pool._tree.match(request, digests(request))
    blocks = [block for block in matched if engine.pool._tree.usable(block)]
    found = {"pages": parts.pages([b.page for b in matched[: blocks[-1].end // GRID]])}
    if engine.pool.hybrid:
        found["state"] = parts.state(blocks[-1].state)
    return found


def test_computing_may_be_faster(start: Callable[..., Engine]) -> None:
    """Then nothing is loaded, and the reply says why."""
    first = start()
    expected, _ = ask(first, TEXT)
    settled(first)
    answer, reuse = ask(start(SLOW), TEXT)

    assert (reuse.source, reuse.reused_tokens) == ("none", 0)
    assert reuse.choice.startswith("computed: loading")
    assert answer.noul == pytest.approx(expected.noul, abs=1e-10)


def test_strangers_share_nothing(start: Callable[..., Engine]) -> None:
    """Other tenants, and those who do not know the secret."""
    first = start()
    ask(first, TEXT, tenant="one")
    settled(first)

    assert ask(start(), TEXT, tenant="two")[1].reused_tokens == 0
    assert (
        ask(start(secret=b"another secret, of the same size"), TEXT, tenant="one")[1].source
        == "none"
    )
    assert ask(start(), TEXT, tenant="one")[1].source == "host"


def test_a_pool_without_room_computes(start: Callable[..., Engine]) -> None:
    """A checkpoint that does not fit beside what is in use is left where it is."""
    first = start()
    expected, _ = ask(first, TEXT)
    settled(first)
    pool_bytes = first.pool.page_bytes * (len(first.plan(TEXT, QUESTIONS).trunk) // GRID + 1)
    small = start(pool_bytes=pool_bytes + 2 * first.pool.state_bytes)
    for _ in range(3):
        answer, _ = ask(small, TEXT)

        assert answer.noul == pytest.approx(expected.noul, abs=1e-10)
    small.pool.clear()
    assert small.pool.use().pages == 0


class Failing(HostStore):
    """Holds everything and gives nothing."""

    def _load(self, wants: Any, deadline: float, found: Any) -> None:
        raise OSError("gone")


class Slow(HostStore):
    """Gives everything, too late."""

    def _load(self, wants: Any, deadline: float, found: Any) -> None:
        time.sleep(max(0.0, deadline - time.monotonic()))


@pytest.mark.parametrize("kind", [Failing, Slow])
def test_a_store_that_fails_means_computing(
    start: Callable[..., Engine], kind: type[HostStore]
) -> None:
    """Never an error, never another answer."""
    broken = TieredStore([Tier(kind(1 << 30), Admission())])
    first = start(store=broken)
    expected, _ = ask(first, TEXT)
    settled(first)
    answer, reuse = ask(start(store=broken), TEXT)

    assert answer.noul == pytest.approx(expected.noul, abs=1e-10)
    assert reuse.reused_tokens == 0


def test_a_growing_session_moves(start: Callable[..., Engine]) -> None:
    """Step by step, each on an engine of its own: only the end is computed."""
    text, whole = "", start(store=TieredStore([Tier(HostStore(1 << 20))]))
    for number in range(6):
        text += f"{number}: " + TEXT[: 400 + 90 * number]
        engine = start()
        answer, reuse = ask(engine, text)
        settled(engine)
        whole.pool.clear()

        assert answer.noul == pytest.approx(ask(whole, text)[0].noul, abs=1e-10)
        if number > 1:
            assert reuse.source == "host"
            assert reuse.new_tokens < 1400


def test_the_audit_computes_again(start: Callable[..., Engine]) -> None:
    """A share of what was restored is computed, and a wrong answer is counted."""
    first = start()
    ask(first, TEXT)
    settled(first)
    engine = start(audit=1.0)
    _, reuse = ask(engine, TEXT)
    audit = engine._serving._lower.audit  # type: ignore[union-attr]
    for _ in range(1_000):
        if audit.checked:
            break
        time.sleep(0.01)

    assert reuse.source == "host"
    assert (audit.checked, audit.mismatched) == (1, 0)
    one = Outcome((np.array([0.5, 0.5]),))
    audit.compare(one, Outcome((np.array([0.6, 0.4]),)))
    assert (audit.checked, audit.mismatched) == (2, 1)
