"""Two tenants share nothing, down to Redis and in other processes; strangers learn nothing."""

from __future__ import annotations

import hmac
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from flide_agent.server import Limits
from flide_agent.server import keys as keys_module
from flide_agent.server.auth import Auth
from flide_agent.server.errors import ApiError
from flide_agent.server.keys import Keys
from tests.cache.server import RedisServer
from tests.server.conftest import body
from tests.server.test_serve import Process
from tests.support.chat import chat_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.server.conftest import Served

PATIENT = 60.0
SECRET = "of sixteen bytes at the least"
STATE = "A text of which two tenants have a copy, letter by letter. " * 14
"""Long enough for a checkpoint below the device, and for that to be worth bringing up."""


def test_checkpoints_over_redis(tmp_path: Path, keys: Callable[..., Path]) -> None:
    """Another server gives a tenant its own checkpoints, and nobody else's."""
    model = chat_model(tmp_path / "model", "qwen3_5", "tied")
    known = keys(one="acme", two="other", three="acme")
    variables = {"FLIDE_SECRET": SECRET}

    def ask(served: Process, key: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        headers = {"authorization": f"Bearer {key}"}
        sent = body(STATE, **changes)
        url = f"{served.url}/v1/systemone"
        reply = httpx.post(url, json=sent, headers=headers, timeout=PATIENT)
        assert reply.status_code == 200
        content = reply.json()
        return content["answers"], content["x_session" if changes else "x_reuse"]

    with ExitStack() as closing:
        redis = closing.enter_context(RedisServer(tmp_path))
        first, second = (
            closing.enter_context(
                Process("--model", model, "--keys", known, "--redis", redis.url, **variables)
            )
            for _ in range(2)
        )
        answers, info = ask(first, "one", session_id="same")
        assert info["reused_tokens"] == 0
        # It ends, so what it offered has been written.
        assert first.end()[0] == 0
        assert redis.client.dbsize() > 0

        for changes in ({"session_id": "same"}, {}):
            theirs, info = ask(second, "two", **changes)
            if changes:
                assert info["reused_tokens"] == 0, info
            assert close(theirs, answers)
        ours, info = ask(second, "three", session_id="same")
        assert info["source"] == "redis", info
        assert info["reused_tokens"] >= 512
        assert close(ours, answers)

        named = b"".join([*redis.client.scan_iter(count=1_000)])
        for name in (b"acme", b"other", b"same"):
            assert name not in named


def close(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether answers in float32 are the same."""
    found = [each["done"]["noul"] for each in (one, other)]
    return bool(found[0] == pytest.approx(found[1], abs=1e-5))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The lengths of what was compared in constant time."""
    noted = []

    def compare(one: str, other: str) -> bool:
        noted.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    class Watched:
        compare_digest = staticmethod(compare)

    monkeypatch.setattr(keys_module, "hmac", Watched)
    return noted


@pytest.mark.parametrize(
    "sent",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Bearer first", "Bearer last", "Basic first"],
)
def test_all_keys_take_the_same_work(
    keys: Callable[..., Path], compared: list[tuple[int, int]], sent: str | None
) -> None:
    """Missing, wrong or right, first or last of the file: every digest is compared, in whole."""
    auth = Auth(Keys(keys(first="a", middle="b", last="c"), Limits()), Limits())
    if sent in ("Bearer first", "Bearer last"):
        assert auth.caller(sent).tenant in ("a", "c")
    else:
        with pytest.raises(ApiError) as refused:
            auth.caller(sent)
        assert refused.value.status == 401
    assert compared == [(64, 64)] * 3


def test_strangers_learn_nothing(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path]
) -> None:
    """What is there and what is not have one reply: before a key is known nothing is looked at."""
    with serve(keys=keys(right="acme")) as served:
        owner = {"authorization": "Bearer right"}
        begun = served.http.post("/v1/sessions", json={"id": "there"}, headers=owner)
        assert begun.is_success
        for stranger in ({}, {"authorization": "Bearer wrong"}):
            told = set()
            for name in ("there", "elsewhere"):
                for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/systemone")):
                    response = served.http.request(
                        method, f"/v1/sessions/{name}{rest}", headers=stranger
                    )
                    held = {k: v for k, v in response.headers.items() if k[:2] != "x-"}
                    held.pop("date")
                    told.add((response.status_code, response.content, str(sorted(held.items()))))
            assert len(told) == 1
        assert served.http.get("/v1/sessions/there", headers=owner).status_code == 200
