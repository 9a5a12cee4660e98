"""The OpenAPI document says what the server does, and the server does what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.server.conftest import Served

HERE = Path(__file__).parent
RUN = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"


def explore(served: Served, tmp_path: Path, key: str = "") -> None:
    """Let schemathesis try the document, with all of its checks."""
    examples = 10 if settings.get_current_profile_name() != "soak" else 1_000
    command = [
        *(sys.executable, "-c", RUN, "--config-file", str(HERE / "schemathesis.toml")),
        *("run", f"{served.url}/openapi.json", "--max-examples", str(examples), "--no-color"),
        # Its answer never ends.
        *("--exclude-path-regex", "watch"),
        *(("--header", f"Authorization: Bearer {key}") if key else ()),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


def test_an_open_server(served: Served, tmp_path: Path) -> None:
    """As it is documented."""
    explore(served, tmp_path)


def test_a_server_with_keys(
    serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Path], tmp_path: Path
) -> None:
    """The same, and nothing without a key."""
    with serve(keys=keys(right="acme")) as served:
        document = served.http.get("/openapi.json").json()
        explore(served, tmp_path, "right")
    open_ = {
        path
        for path, operations in document["paths"].items()
        for operation in operations.values()
        if "security" not in operation
    }
    assert open_ == {"/health"}


def test_examples_work(served: Served) -> None:
    """Those that the document shows, one after the other."""
    paths: dict[str, Any] = served.http.get("/openapi.json").json()["paths"]
    assert len(paths) == 11
    done = 0
    for path, operations in paths.items():
        if not path.endswith("watch") and (request := operations.get("post")):
            content = request["requestBody"]["content"]["application/json"]
            url = path.replace("{session}", "thread-7")
            response = served.http.post(url, json=content["example"])
            assert response.is_success, (path, response.text)
            done += 1
    assert done == 6


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_it_is_there(served: Served, path: str) -> None:
    """For people and for programs."""
    assert served.http.get(path).status_code == 200
    assert json.loads(served.http.get("/openapi.json").content)["info"]["title"] == "flide-agent"
