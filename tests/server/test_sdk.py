"""The official client of System One, which knows nothing of this server."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import typesafe_sdk as sdk

from flide_agent import Client
from flide_agent.server import Limits, Settings
from tests.agent.sessions.conftest import numbers
from tests.server.conftest import body, serving
from tests.server.held import Held

if TYPE_CHECKING:
    from flide_engine.engine import Engine
    from tests.server.conftest import Served

ASKED: dict[str, Any] = {
    "done": sdk.Noul(instructions="Is it done?"),
    "which": sdk.Choice(instructions="Which?", criteria={"a": None, "b": "the other"}),
    "how": sdk.Score(instructions="How bad?", criteria=["low", "middle", "high"]),
}
STATE = "A state long enough to be packed. " * 40
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
ONCE = sdk.RetryPolicy(max_retries=0)


@pytest.fixture
def variables(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that somebody has to change who used another server."""
    monkeypatch.setenv("TYPESAFE_BASE_URL", served.url)
    monkeypatch.setenv("TYPESAFE_API_KEY", "any")


def check(response: sdk.SystemOneResponse, engine: Engine) -> None:
    """The answers are the engine's."""
    questions = {name: question.model_dump() for name, question in ASKED.items()}
    expected = numbers(Client.local(engine).system_one(STATE, questions))
    found = [response.nouls["done"].noul, 1 - response.nouls["done"].noul]
    found += response.choices["which"].probabilities.values()
    found += response.scores["how"].probabilities.values()
    assert found == pytest.approx(expected, abs=1e-9)
    assert response.scores["how"].legend == {0: "low", 1: "middle", 2: "high"}
    assert response.request_id.startswith("req_")


@pytest.mark.usefixtures("variables")
class TestAnswers:
    @pytest.mark.parametrize("compression", ["zstd", False])
    def test_sync(self, engine: Engine, compression: Any) -> None:
        """Packed or not."""
        with sdk.TypeSafeClient(compression=compression) as client:
            check(client.system_one(STATE, ASKED), engine)
            assert [model.name for model in client.models.list().models][1] == "jev-latest"

    def test_async(self, engine: Engine) -> None:
        """Awaited."""

        async def ask() -> sdk.SystemOneResponse:
            async with sdk.AsyncTypeSafeClient() as client:
                return await client.system_one(STATE, ASKED)

        check(asyncio.run(ask()), engine)

    def test_sessions(self) -> None:
        """By a header or a field that the client passes through; a key makes it idempotent."""
        with sdk.TypeSafeClient(retry=ONCE) as client:
            named = {"x-session-id": "sdk", "idempotency-key": "step 1"}
            first = client.system_one(STATE, ASKED, extra_headers=named)
            again = client.system_one([STATE, "more"], ASKED, extra_body={"session_id": "sdk"})
            with pytest.raises(sdk.TypeSafeAPIError) as conflict:
                client.system_one("other", ASKED, extra_headers=named)
        held = [r.raw_http_response.json()["x_session"] for r in (first, again)]
        assert [each["reason"] for each in held] == ["new", "appended"]
        assert held[1]["reused_tokens"] > 0
        assert conflict.value.status == 409

    def test_images(self) -> None:
        """Are refused in words, until there is an engine that sees."""
        with (
            sdk.TypeSafeClient(retry=ONCE) as client,
            pytest.raises(sdk.TypeSafeAPIError, match="images") as image,
        ):
            client.system_one("x", ASKED, assets={"a": sdk.Image(PNG)})
        assert image.value.status == 415


@pytest.mark.parametrize("status", [429, 529])
def test_busy(engine: Engine, status: int) -> None:
    """With the time to wait, which the client honours: it tries again, and is answered."""
    runtime = Held(engine)
    own, all_ = (1, 9) if status == 429 else (9, 1)
    settings = Settings(timeout=30, requests=all_, limits=Limits(requests=own))
    with serving(runtime, settings) as served, ThreadPoolExecutor(1) as pool:
        first = pool.submit(served.http.post, "/v1/systemone", json=body())
        runtime.wait_for(1)
        with sdk.TypeSafeClient(api_key="k", base_url=served.url) as client:
            with pytest.raises(sdk.TypeSafeAPIError) as busy:
                client.system_one("x", ASKED, retry=ONCE)
            assert busy.value.status == status
            runtime.let_go()
            assert first.result().status_code == 200
            assert client.system_one("x", ASKED).answers
    runtime.close()
