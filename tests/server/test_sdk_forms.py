"""The official client in all its forms: its own README, and the exception of every status."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any

import pytest
import typesafe_sdk as sdk

from flide_agent.server import Limits, Settings
from tests.server.conftest import body, serving
from tests.server.held import Held
from tests.server.test_sdk import ASKED, ONCE, STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from flide_engine.engine import Engine
    from tests.server.conftest import Served

ELEVEN = {"q": sdk.Score(instructions="x", criteria=["a"] * 11)}


@dataclass(frozen=True)
class Form:
    """A way to use the client."""

    awaited: bool
    compression: Any

    def ask(self, served: Served, key: str, state: Any, asked: Any = None, **more: Any) -> Any:
        """Ask once."""
        options: Any = {
            "base_url": served.url,
            "api_key": key,
            "retry": ONCE,
            "compression": self.compression,
        }
        if not self.awaited:
            with sdk.TypeSafeClient(**options) as client:
                return client.system_one(state, asked or ASKED, **more)

        async def ask() -> Any:
            async with sdk.AsyncTypeSafeClient(**options) as client:
                return await client.system_one(state, asked or ASKED, **more)

        return asyncio.run(ask())


@pytest.fixture(
    params=[Form(awaited, how) for awaited in (False, True) for how in ("zstd", False)],
    ids=["sync-zstd", "sync-plain", "async-zstd", "async-plain"],
)
def form(request: pytest.FixtureRequest) -> Form:
    """Every way."""
    chosen: Form = request.param
    return chosen


@pytest.fixture
def locked(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path]
) -> Iterator[Served]:
    """A server with a key."""
    with serve(keys=keys(right="acme")) as served:
        yield served


@pytest.mark.parametrize(
    ("status", "kind", "said", "key", "call"),
    [
        (401, sdk.TypeSafeAuthenticationError, "not known", "wrong", (STATE,)),
        (404, sdk.TypeSafeNotFoundError, "tiny", "right", (STATE, None, {"model": "other"})),
        (413, sdk.TypeSafeAPIError, "token", "right", ("x" * 9_000,)),
        (422, sdk.TypeSafeUnprocessableEntityError, r"q\.score\.criteria", "right", ("x", ELEVEN)),
    ],
)
def test_refused(
    locked: Served, form: Form, status: int, kind: Any, said: str, key: str, call: tuple[Any, ...]
) -> None:
    """Each status is the exception that the client has for it, with our words and the name."""
    state, asked, more = (*call, None, None)[:3]
    with pytest.raises(kind, match=said) as refused:
        form.ask(locked, key, state, asked, **(more or {}))
    assert type(refused.value) is kind
    assert refused.value.status == status
    assert form.ask(locked, "right", STATE).answers


def test_conflict(locked: Served, form: Form) -> None:
    """409: a key that was used for something else; its exact repeat is answered."""
    named = {"x-session-id": "sdk", "idempotency-key": "step 1"}
    first = form.ask(locked, "right", STATE, extra_headers=named)
    again = form.ask(locked, "right", STATE, extra_headers=named)
    assert again.answers == first.answers
    with pytest.raises(sdk.TypeSafeAPIError, match="new key") as refused:
        form.ask(locked, "right", "other", extra_headers=named)
    assert refused.value.status == 409


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, sdk.TypeSafeRateLimitError), (529, sdk.TypeSafeInternalServerError)],
)
def test_busy(engine: Engine, form: Form, status: int, kind: Any) -> None:
    """Too many of one, or of all."""
    runtime = Held(engine)
    own, all_ = (1, 9) if status == 429 else (9, 1)
    settings = Settings(timeout=30, requests=all_, limits=Limits(requests=own))
    with serving(runtime, settings) as served, ThreadPoolExecutor(1) as pool:
        first = pool.submit(served.http.post, "/v1/systemone", json=body())
        runtime.wait_for(1)
        try:
            with pytest.raises(kind) as refused:
                form.ask(served, "any", STATE)
        finally:
            runtime.let_go()
        assert refused.value.status == status
        assert first.result().status_code == 200
        assert form.ask(served, "any", STATE).answers
    runtime.close()


def test_its_readme(served: Served) -> None:
    """The example that the client's package comes with, as it stands, and two variables."""
    readme = metadata("typesafe-sdk").get_payload()  # type: ignore[attr-defined]
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    variables = {"TYPESAFE_BASE_URL": served.url, "TYPESAFE_API_KEY": "any"}
    done = subprocess.run(
        [sys.executable, "-c", example],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("billing", "technical", "other")
