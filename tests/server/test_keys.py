"""API keys: who comes in, and that nobody comes in as somebody else."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from flide_agent import InvalidInput
from flide_agent.server import Limits
from flide_agent.server.keys import Keys, digest
from tests.server.conftest import body

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.server.conftest import Served

ROUTES = [
    ("POST", "/v1/systemone"),
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("POST", "/v1/sessions"),
    ("GET", "/v1/sessions/s"),
    ("DELETE", "/v1/sessions/s"),
    *(
        ("POST", f"/v1/sessions/s/{verb}")
        for verb in ("append", "systemone", "fork", "rewind", "watch")
    ),
]


def bearer(key: str) -> dict[str, str]:
    """The header of a key."""
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_nothing_without_a_key(
    serve: Callable[..., AbstractContextManager[Served]],
    keys: Callable[..., Path],
    method: str,
    path: str,
) -> None:
    """Missing and wrong ones are 401 on every route, before a body is read or a session sought."""
    with serve(keys=keys(right="acme")) as served:
        for headers in (
            {},
            bearer("wrong"),
            {"authorization": "Basic right"},
            {"authorization": "Bearer"},
        ):
            response = served.http.request(method, path, headers=headers, content=b"{not read")
            assert response.status_code == 401
            assert response.json()["detail"]["error_type"] == "authentication_error"
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["x-typesafe-request-id"]
        assert served.http.get("/health").status_code == 200


def test_a_key_is_a_tenant(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path]
) -> None:
    """Sessions of the same name are apart, and so is what is computed; two keys of one are not."""
    state = "A text of some length, of which two tenants have a copy. " * 5
    path = keys(one="acme", two="other", three="acme")
    with serve(keys=path) as served:

        def ask(key: str) -> Any:
            sent = body(state, session_id="same", tenant="acme")
            return served.http.post("/v1/systemone", json=sent, headers=bearer(key)).json()

        first, second, third = ask("one"), ask("two"), ask("three")
        assert first["x_session"]["reused_tokens"] == second["x_session"]["reused_tokens"] == 0
        assert third["x_session"]["reused_tokens"] > 0
        assert first["answers"].keys() == second["answers"].keys()
        served.http.delete("/v1/sessions/same", headers=bearer("two"))
        for key, status in (("one", 200), ("two", 404), ("three", 200)):
            response = served.http.get("/v1/sessions/same", headers=bearer(key))
            assert response.status_code == status


def test_an_open_server_ignores_keys(served: Served) -> None:
    """Clients send one in any case."""
    response = served.http.post("/v1/systemone", json=body(), headers=bearer("anything"))
    assert response.status_code == 200


def test_keys_are_read_again(keys: Callable[..., Path]) -> None:
    """A key that is added or taken away counts a second later; a damaged file changes nothing."""
    now = [0.0]
    path = keys(old="acme")
    known = Keys(path, Limits(), clock=lambda: now[0])

    def find(key: str) -> str | None:
        now[0] += 2
        caller = known.find(key.encode())
        return caller and caller.tenant

    assert (find("old"), find("new")) == ("acme", None)
    keys(new="acme")
    os.utime(path, ns=(1, 1))
    assert (find("old"), find("new")) == (None, "acme")
    path.write_text("{")
    assert find("new") == "acme"
    path.unlink()
    assert find("new") == "acme"


def test_limits_of_a_key(keys: Callable[..., Path]) -> None:
    """What it does not say is the server's."""
    known = Keys(keys(big=("acme", {"questions": 7})), Limits(sessions=3))
    caller = known.find(b"big")
    assert caller is not None
    assert (caller.limits.questions, caller.limits.sessions) == (7, 3)


@pytest.mark.parametrize("form", ["toml", "json"])
def test_forms(tmp_path: Path, form: str) -> None:
    """JSON, or TOML."""
    path = tmp_path / f"keys.{form}"
    if form == "toml":
        path.write_text(f'[[keys]]\nsha256 = "{digest(b"k").upper()}"\ntenant = "t"\n')
    else:
        path.write_text(json.dumps({"keys": [{"sha256": digest(b"k"), "tenant": "t"}]}))
    caller = Keys(path, Limits()).find(b"k")
    assert caller is not None
    assert caller.tenant == "t"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"keys": []}',
        '{"keys": [{"sha256": "12", "tenant": "t"}]}',
        json.dumps({"keys": [{"sha256": "a" * 64, "tenant": ""}]}),
        json.dumps({"keys": [{"sha256": "a" * 64, "tenant": "t", "key": "plain"}]}),
        json.dumps({"keys": [{"sha256": "a" * 64, "tenant": "t", "limits": {"x": 1}}]}),
        None,
    ],
)
def test_files_that_are_none(tmp_path: Path, content: str | None) -> None:
    """Are named in the error."""
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput, match=r"keys\.json"):
        Keys(path, Limits())


def test_tenants_sessions_are_bounded(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path]
) -> None:
    """One more than allowed, and the tenant's own oldest goes; nobody else's does."""
    path = keys(one=("acme", {"sessions": 2}), two="other")
    with serve(keys=path) as served:

        def status(name: str, key: str = "one") -> int:
            return served.http.get(f"/v1/sessions/{name}", headers=bearer(key)).status_code

        for name, key in (("x", "two"), ("a", "one"), ("b", "one"), ("c", "one")):
            sent = {"id": name, "messages": ["text"]}
            assert served.http.post("/v1/sessions", json=sent, headers=bearer(key)).is_success
        assert [status("x", "two"), status("a"), status("b"), status("c")] == [200, 404, 200, 200]


def test_bodies_of_strangers_are_not_read(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path]
) -> None:
    """However much they would send."""
    with serve(keys=keys(right="acme")) as served:

        def endless() -> Any:
            while True:
                yield b"x" * 65_536

        response = httpx.post(f"{served.url}/v1/systemone", content=endless(), timeout=10)
    assert response.status_code == 401
