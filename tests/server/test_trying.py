"""What the client over HTTP tries again, and what it does not."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from flide_agent import (
    AsyncClient,
    Busy,
    Client,
    EngineUnavailable,
    InvalidInput,
    Noul,
    TooLarge,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Script(BaseHTTPRequestHandler):
    """A server that replies as it is told, and then as System One."""

    protocol_version = "HTTP/1.1"
    script: ClassVar[list[tuple[int, dict[str, str], bytes]]]
    seen: ClassVar[list[Any]]

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        type(self).seen.append((self.path, dict(self.headers), sent))
        status, headers, reply = type(self).script.pop(0)
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def scripted() -> Iterator[tuple[str, type[Script]]]:
    """A server that replies as it is told."""

    class Own(Script):
        script: ClassVar[list[tuple[int, dict[str, str], bytes]]] = []
        seen: ClassVar[list[Any]] = []

    server = HTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Own
    server.shutdown()
    thread.join()
    server.server_close()


GOOD = (
    200,
    {"x-typesafe-request-id": "abc"},
    b'{"model":"m","answers":{"q":{"type":"noul","noul":0.5,"extra":1}},'
    b'"usage":{"input_tokens":1,"output_tokens":0},"id":"of somebody else"}',
)
QUESTION = {"q": Noul(instructions="Is it?")}
SOON = {"retry-after-ms": "10"}


class TestTrying:
    @pytest.mark.parametrize("awaited", [True, False])
    @pytest.mark.parametrize(
        "bad", [(0, {}, b""), (429, SOON, b"{}"), (529, SOON, b"x"), (502, SOON, b"")]
    )
    def test_again(
        self, scripted: tuple[str, type[Script]], bad: tuple[int, Any, bytes], awaited: bool
    ) -> None:
        """What may pass is tried again, with the same request."""
        url, script = scripted
        script.script += [bad, GOOD]
        if awaited:

            async def ask() -> Any:
                async with AsyncClient(url) as client:
                    return await client.system_one("x", QUESTION)

            response = asyncio.run(ask())
        else:
            with Client(url) as client:
                response = client.system_one("x", QUESTION)
        assert response["q"].noul == 0.5
        assert response.request_id == "abc"
        assert script.seen[0][2] == script.seen[1][2]

    @pytest.mark.parametrize(
        ("status", "detail", "raised", "said"),
        [
            (400, b'{"message":"flat","error_type":"api_usage_error"}', InvalidInput, "flat"),
            (401, b'{"detail":{"error_type":"a","message":"who?"}}', Unauthorized, r"who\?"),
            (403, b"<html>", Unauthorized, "<html>"),
            (409, b'{"detail":{"error_type":"other","message":"m"}}', InvalidInput, "m"),
            (413, b'{"detail":"plain"}', TooLarge, "plain"),
            (
                422,
                b'{"detail":[{"loc":["body","questions","q",0],"msg":"no"},{"msg":"so"}]}',
                InvalidInput,
                r"questions.q\[0\]: no; so",
            ),
        ],
    )
    def test_once(
        self,
        scripted: tuple[str, type[Script]],
        status: int,
        detail: bytes,
        raised: type[Exception],
        said: str,
    ) -> None:
        """What is refused is not asked again, and its words are passed on."""
        url, script = scripted
        script.script += [(status, {}, detail)]
        with Client(url) as client, pytest.raises(raised, match=said):
            client.system_one("x", QUESTION)
        assert len(script.seen) == 1

    def test_not_for_ever(self, scripted: tuple[str, type[Script]]) -> None:
        """Nor longer than there is time."""
        url, script = scripted
        script.script += [(429, SOON, b"")] * 3 + [(529, {"retry-after": "60"}, b"")]
        with Client(url, timeout=5) as client:
            for tries in (3, 4):
                with pytest.raises(Busy):
                    client.system_one("x", QUESTION)
                assert len(script.seen) == tries

    def test_other_replies(self, scripted: tuple[str, type[Script]]) -> None:
        """What is no System One reply is the server's fault."""
        url, script = scripted
        script.script += [(200, {}, b'{"answers":[]}')]
        with Client(url) as client, pytest.raises(EngineUnavailable, match="model"):
            client.system_one("x", QUESTION)

    def test_keys_go_where_they_belong(
        self, scripted: tuple[str, type[Script]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A key of one service is not sent to another one's address."""
        url, script = scripted
        script.script += [GOOD, GOOD, GOOD]
        monkeypatch.setenv("TYPESAFE_API_KEY", "theirs")
        monkeypatch.delenv("FLIDE_API_KEY", raising=False)
        monkeypatch.setenv("FLIDE_BASE_URL", url)
        with Client() as client:
            client.system_one("x", QUESTION)
        monkeypatch.setenv("FLIDE_API_KEY", "ours")
        with Client() as client:
            client.system_one("x", QUESTION)
        monkeypatch.delenv("FLIDE_BASE_URL")
        monkeypatch.setenv("TYPESAFE_BASE_URL", url)
        with Client() as client:
            client.system_one("x", QUESTION)
        sent = [headers.get("authorization") for _, headers, _ in script.seen]
        assert sent == [None, "Bearer ours", "Bearer theirs"]
