"""Whatever is sent, the reply is in order: never a 5xx, never another shape.

`make soak` runs the same with ten thousand of each.
"""

from __future__ import annotations

import gzip
import json
import socket
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flide_agent import SystemOneResponse
from flide_agent.session_types import Answers, SessionDescription, SessionInfo
from tests.server.conftest import ASKED, body

if TYPE_CHECKING:
    import httpx

    from tests.server.conftest import Served

FUZZED = settings(deadline=None, suppress_health_check=list(HealthCheck))

POLICY = {"rules": [{"id": "r", "question": ASKED["done"], "block": 0.9}]}
STEP = {"parent": None, "messages": [{"role": "user", "content": "hi"}, "text"], "ttl": 60}
FORMS: list[tuple[str, Any]] = [
    ("/v1/systemone", body()),
    ("/v1/systemone", body([{"role": "user", "content": "x"}], session_id="fuzz")),
    ("/v1/sessions", {"id": "fuzz", "messages": ["a"]}),
    ("/v1/sessions/fuzz/append", {**STEP, "history": "full", "summary": True}),
    ("/v1/sessions/fuzz/systemone", {**STEP, "questions": ASKED, "state": {"tool": "x"}}),
    ("/v1/sessions/fuzz/systemone", {"policy": POLICY, "tool": "x", "since": "last", "key": "k"}),
    ("/v1/sessions/fuzz/fork", {"at": None}),
    ("/v1/sessions/fuzz/rewind", {"to": ""}),
]
REPLIES = (SystemOneResponse, Answers, SessionInfo, SessionDescription)

HUGE = "@huge@"
"""Stands for an integer that Python does not write."""

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.just(10**400),
    st.just(HUGE),
    st.text(st.characters(exclude_categories=[])),
    st.sampled_from(["\ud800", "a\udfff", "", "\x00", "last", "noul", [[[[]]]], {}, {"": ""}]),
    st.integers(150, 3_000).map(lambda depth: _nested(depth)),
)
values = st.recursive(
    odd,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def _nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth % 900):
        value = [value]
    return value


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document."""
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += places(item, (*path, index))
    return found


@st.composite
def spoiled(draw: st.DrawFn) -> tuple[str, Any]:
    """A request that was in order, before something in it was put in, replaced or taken away."""
    path, form = draw(st.sampled_from(FORMS))
    form = json.loads(json.dumps(form))
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(form)[1:]))
        inside = form
        for step in way:
            inside = inside[step]
        match draw(st.integers(0, 2)):
            case 0:
                del inside[last]
            case 1:
                inside[last] = draw(values)
            case _ if isinstance(inside, dict):
                inside[draw(st.text(st.characters(exclude_categories=[])))] = draw(values)
        if len(places(form)) < 2:
            break
    return path, form


def written(form: Any) -> bytes:
    """JSON with all that Python lets through."""
    return json.dumps(form).replace(f'"{HUGE}"', "9" * 5_000).encode()


def check(response: httpx.Response) -> None:
    """A reply of one of the shapes there are."""
    assert response.status_code in (200, 400, 404, 405, 409, 413, 415, 422), response.text
    assert response.headers["x-typesafe-request-id"]
    content = json.loads(response.content.decode())
    if response.status_code == 200:
        assert any(_is(kind, content) for kind in REPLIES), content
        return
    detail = content["detail"]
    if response.status_code == 422:
        assert detail
        for fault in detail:
            assert fault.keys() == {"loc", "msg", "type"}
            assert fault["loc"][0] in ("body", "path", "query")
    else:
        assert isinstance(detail["message"], str)
        assert detail["error_type"]


def check_written(reply: bytes) -> None:
    """What came over the wire is nothing, or a reply of the server that is none of its faults."""
    head = reply.partition(b"\r\n\r\n")[0].lower()
    assert not reply or head.split()[1][:1] in (b"2", b"4"), reply
    assert not reply or b"\r\nx-typesafe-request-id: req_" in head, reply


def _is(kind: type[Any], content: Any) -> bool:
    try:
        kind.model_validate(content)
    except ValueError:
        return False
    return True


@FUZZED
@given(spoiled())
def test_requests_that_were_spoiled(served: Served, request_: tuple[str, Any]) -> None:
    """Fields of other kinds, missing or strange, on every route."""
    path, form = request_
    check(served.http.post(path, content=written(form)))


@FUZZED
@given(st.sampled_from(FORMS), values)
def test_other_documents(served: Served, form: tuple[str, Any], value: Any) -> None:
    """JSON that has nothing to do with what is asked for."""
    check(served.http.post(form[0], content=written(value)))


@FUZZED
@given(
    st.sampled_from(FORMS),
    st.binary(max_size=200),
    st.integers(0, 400),
    st.sampled_from([None, b"gzip", b"zstd", b"br", b"identity", b"gzip, gzip", b"\xff"]),
    st.sampled_from([b"application/json", b"text/plain", b"multipart/form-data", b"\xe9;;"]),
)
def test_damaged_bytes(
    served: Served,
    form: tuple[str, Any],
    noise: bytes,
    at: int,
    encoding: bytes | None,
    kind: bytes,
) -> None:
    """Bytes changed, cut off and packed, or not what the headers say."""
    path, content = form
    data = written(content)
    data = data[:at] + noise + data[at + len(noise) :]
    if encoding == b"gzip" and at % 2:
        data = gzip.compress(data)[: at * 2]
    headers = [(b"content-type", kind), *([(b"content-encoding", encoding)] if encoding else [])]
    check(served.http.post(path, content=data, headers=headers))


@FUZZED
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"]),
    st.text(min_size=1, max_size=300),
    st.sampled_from(["", "/append", "/watch", "/fork", "?turns=x", "?at=%ff", "?turns=1&at=x"]),
)
def test_strange_paths(served: Served, method: str, name: str, rest: str) -> None:
    """Any method on any session."""
    from urllib.parse import quote

    path = f"/v1/sessions/{quote(name, safe='')}{rest}"
    response = served.http.request(method, path)
    if method == "HEAD" or (method == "DELETE" and response.is_success):
        assert response.status_code < 500
    else:
        check(response)


ODDITIES = [
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/systemone HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n{}",
    b"GET /health HTTP/9.9\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: [::\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%zz%00%ff/../.. HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\xfe\r\n\r\n",
    b"GET http://x/health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
]


def test_what_is_hardly_http(served: Served) -> None:
    """Is refused or dropped, and the next client is served."""
    host, port = served.url.removeprefix("http://").split(":")
    for data in ODDITIES:
        with socket.create_connection((host, int(port)), timeout=5) as wire:
            wire.settimeout(0.3)
            try:
                wire.sendall(data)
                reply = wire.recv(65_536)
            except OSError:
                reply = b""
        check_written(reply)
        assert served.http.get("/health").status_code == 200
