"""System One over HTTP: what is answered, and how it is refused."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import SystemOneResponse
from flide_agent.runtime import to_response
from tests.agent.sessions.conftest import numbers
from tests.server.conftest import ASKED, NOUL, Served, body

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import httpx

    from flide_engine.engine import Engine

REQUEST_ID = "x-typesafe-request-id"


def faults(response: httpx.Response) -> list[dict[str, Any]]:
    """What a validation error lists."""
    assert response.status_code == 422
    detail = response.json()["detail"]
    assert detail
    assert all({"loc", "msg", "type"} == set(each) for each in detail)
    return list(detail)


def pack(data: bytes, encoding: str) -> bytes:
    """A packed body."""
    if encoding == "zstd":
        return zstd.compress(data)
    return gzip.compress(data) if encoding == "gzip" else data


def kind(response: httpx.Response) -> str:
    """The type of another error."""
    detail = response.json()["detail"]
    assert detail["message"].endswith(".")
    return str(detail["error_type"])


class TestAnswers:
    @pytest.mark.parametrize("state", ["some text", {"a": [1, None]}, [{"role": "user"}, "and"]])
    def test_are_the_engines(self, served: Served, engine: Engine, state: Any) -> None:
        """The response is what the engine decides, written as System One."""
        response = served.http.post("/v1/systemone", json=body(state))
        answered = SystemOneResponse.model_validate(response.json())
        expected = to_response(engine.decide(state, ASKED), "tiny")

        assert response.status_code == 200
        assert answered.answers.keys() == ASKED.keys()
        assert answered.nouls["done"].noul == pytest.approx(expected.nouls["done"].noul, abs=1e-9)
        assert answered.usage == expected.usage
        assert answered.x_timing
        assert answered.x_timing.total_ms > 0
        assert all(
            name in ("model", "answers", "usage") or name[:2] == "x_" for name in response.json()
        )

    def test_every_reply_has_a_name(self, served: Served) -> None:
        """Also refusals and what is not there; no two are the same."""
        http = served.http
        replies = [
            http.post("/v1/systemone", json=body()),
            http.post("/v1/systemone", content=b"{"),
            http.get("/nothing"),
            http.put("/v1/systemone"),
            http.get("/health"),
        ]

        assert [r.status_code for r in replies] == [200, 422, 404, 405, 200]
        assert len({r.headers[REQUEST_ID] for r in replies}) == len(replies)

    def test_models(self, served: Served) -> None:
        """The loaded one by its name, and by the name that clients ask for by default."""
        models = served.http.get("/v1/models").json()["models"]

        assert [m["name"] for m in models] == ["tiny", "jev-latest"]
        for model in models:
            assert served.http.post("/v1/systemone", json=body(model=model["name"])).is_success

    def test_health_and_metrics(self, served: Served) -> None:
        """The engine lives, and requests are counted by route and status."""
        served.http.post("/v1/systemone", json=body())
        text = served.http.get("/metrics").text

        assert served.http.get("/health").json() == {"status": "ok"}
        assert 'flide_requests_total{route="/v1/systemone",status="200"}' in text
        assert "flide_engine_alive 1.0" in text


class TestPacked:
    @pytest.mark.parametrize("encoding", ["zstd", "gzip", "identity"])
    def test_bodies_are_unpacked(self, served: Served, encoding: str) -> None:
        """Also where they are several streams in a row."""
        written = json.dumps(body("text " * 100)).encode()
        packed = b"".join(pack(part, encoding) for part in (written[:50], written[50:]))

        response = served.http.post(
            "/v1/systemone", content=packed, headers={"content-encoding": encoding}
        )
        plain = served.http.post("/v1/systemone", content=written)

        assert response.status_code == 200
        assert response.json()["usage"] == plain.json()["usage"]

    @pytest.mark.parametrize("encoding", ["zstd", "gzip"])
    @pytest.mark.parametrize("declared", [True, False])
    def test_bombs_are_refused(
        self,
        serve: Callable[..., AbstractContextManager[Served]],
        encoding: str,
        declared: bool,
    ) -> None:
        """A small body that unpacks to a large one is 413, whether or not it says so itself."""
        bomb = b"[" + b" " * 10_000_000
        if encoding == "gzip":
            packed = gzip.compress(bomb)
        else:
            packer = zstd.ZstdCompressor()
            packed = zstd.compress(bomb) if declared else packer.compress(bomb) + packer.flush()
        with serve(limits={"body_bytes": 1_000_000}) as served:
            response = served.http.post(
                "/v1/systemone", content=packed, headers={"content-encoding": encoding}
            )

        assert len(packed) < 20_000
        assert response.status_code == 413
        assert kind(response) == "request_too_large"

    @pytest.mark.parametrize("encoding", ["zstd", "gzip"])
    def test_damage_is_a_422(self, served: Served, encoding: str) -> None:
        """Bytes that are not what they say, and streams that break off."""
        whole = pack(b"[1]" * 100, encoding)
        for data in (b"plain", whole[:-5], whole + b"more"):
            response = served.http.post(
                "/v1/systemone", content=data, headers={"content-encoding": encoding}
            )
            assert faults(response)[0]["type"] == "encoding_invalid"

    def test_other_encodings_and_images_are_415(self, served: Served) -> None:
        """With what to do instead."""
        http = served.http
        packed = http.post("/v1/systemone", content=b"x", headers={"content-encoding": "br"})
        image = http.post("/v1/systemone", files={"asset-0": b"\x89PNG"}, data={"request": "{}"})

        assert [packed.status_code, image.status_code] == [415, 415]
        assert packed.headers["accept-encoding"] == "gzip, zstd"
        assert "images" in image.json()["detail"]["message"]


class TestRefused:
    @pytest.mark.parametrize(
        ("sent", "place"),
        [
            (b"", []),
            (b"{", []),
            (b"[]", []),
            (b"\xff{}", []),
            (b'{"a": 1, "a": 1}', []),
            (b"[" * 100_000, []),
            (b'{"model": "jev-latest", "state": "x", "questions": {}}', ["questions"]),
            (json.dumps(body(None)).encode(), ["state"]),
            (json.dumps(body(float("nan"))).encode(), ["state"]),
            (json.dumps(body({"x": float("inf")})).encode(), ["state"]),
            (json.dumps(body("\ud800")).encode(), ["state"]),
            (json.dumps(body(assets={"a": "b"})).encode(), ["assets"]),
            (json.dumps(body(model=7)).encode(), ["model"]),
        ],
    )
    def test_with_a_list_of_faults(self, served: Served, sent: bytes, place: list[str]) -> None:
        """Each has the place in the body; never a 5xx."""
        response = served.http.post("/v1/systemone", content=sent)

        assert faults(response)[0]["loc"] == ["body", *place]

    @pytest.mark.parametrize(
        ("question", "place"),
        [
            ({"type": "score", "criteria": {"low": None}}, ["score", "criteria"]),
            ({"type": "choice", "criteria": {}}, ["choice", "criteria"]),
            ({"type": "choice"}, ["choice", "criteria"]),
            ({"type": "score", "criteria": ["low", None]}, ["score", "criteria", 1]),
            ({"type": "boolean"}, []),
            ({}, []),
        ],
    )
    def test_with_the_type_after_the_id(
        self, served: Served, question: dict[str, Any], place: list[str]
    ) -> None:
        """As a discriminated union has it, so that clients can render the path."""
        response = served.http.post("/v1/systemone", json=body(questions={"my q": question}))

        assert faults(response)[0]["loc"] == ["body", "questions", "my q", *place]

    def test_unknown_models_are_404(self, served: Served) -> None:
        """With the names of those that are there."""
        response = served.http.post("/v1/systemone", json=body(model="gpt"))

        assert response.status_code == 404
        assert kind(response) == "model_not_found"
        assert "tiny" in response.json()["detail"]["message"]

    def test_what_is_not_served(self, served: Served) -> None:
        """Unknown paths and methods have errors of the same shape."""
        nowhere, method = served.http.get("/v1/nothing"), served.http.delete("/v1/systemone")

        assert (nowhere.status_code, kind(nowhere)) == (404, "not_found")
        assert (method.status_code, kind(method)) == (405, "method_not_allowed")
        assert method.headers["allow"] == "POST"

    def test_what_is_too_large(self, serve: Callable[..., AbstractContextManager[Served]]) -> None:
        """Bodies, questions and tokens have bounds; a text that cannot fit the model is 413 too."""
        limits = {"body_bytes": 20_000, "questions": 3, "tokens": 1_000}
        with serve(limits=limits) as served:
            long = served.http.post("/v1/systemone", json=body("x" * 20_000))
            chunked = served.http.post("/v1/systemone", content=iter([b"x" * 15_000] * 2))
            many = served.http.post(
                "/v1/systemone", json=body(questions={str(n): NOUL for n in range(4)})
            )
            deep = served.http.post("/v1/systemone", json=body("y" * 1_500))

        assert [r.status_code for r in (long, chunked, deep)] == [413] * 3
        assert [kind(r) for r in (long, chunked)] == ["request_too_large"] * 2
        assert kind(deep) == "context_too_large"
        assert faults(many)[0]["type"] == "too_many_questions"

    def test_longer_than_the_context(self, served: Served) -> None:
        """The engine's own bound."""
        response = served.http.post("/v1/systemone", json=body("z" * 9_000))

        assert response.status_code == 413
        assert kind(response) == "context_too_large"

    def test_quoted_text_cannot_break_an_error(self, served: Served) -> None:
        """Whatever was sent, the reply is UTF-8 and JSON."""
        asked = {'q"\u2028\x00': {"type": "choice", "criteria": {"\ud800": None}}}
        response = served.http.post("/v1/systemone", content=json.dumps(body(questions=asked)))

        assert faults(response)[0]["loc"][2] == 'q"\u2028\x00'
        response.content.decode()


def test_session_ids_give_the_same_answers(served: Served) -> None:
    """In the body or a header, where the body wins; what is held is not computed again."""
    plain, longer = (
        served.http.post("/v1/systemone", json=body("A text of some length. " * 20 + more)).json()
        for more in ("", "And more.")
    )
    by_header = served.http.post(
        "/v1/systemone",
        json=body("A text of some length. " * 20),
        headers=[(b"x-session-id", "one, ünì".encode())],
    ).json()
    by_body = served.http.post(
        "/v1/systemone",
        json=body(["A text of some length. " * 20, "And more."], session_id="two"),
        headers={"x-session-id": "one"},
    ).json()

    for one, other in ((by_header, plain), (by_body, longer)):
        given = [numbers(SystemOneResponse.model_validate(each)) for each in (one, other)]
        assert given[0] == pytest.approx(given[1], abs=1e-9)
    assert by_header["x_session"]["id"] == "one, ünì"
    assert by_body["x_session"]["id"] == "two"
    assert by_body["x_session"]["reused_tokens"] > 0
    for name in (7, "", "x" * 257, ["a"]):
        wrong = served.http.post("/v1/systemone", json=body(session_id=name))
        assert faults(wrong)[0]["loc"] == ["body", "session_id"]


@pytest.mark.parametrize("sent", [{"id": "gone"}, {"id": "gone", "ttl": 5e-324}])
def test_what_is_deleted_is_gone(served: Served, sent: dict[str, Any]) -> None:
    """Until something is appended, which begins it anew."""
    path = "/v1/sessions/gone"
    for _ in range(3):
        first = served.http.post("/v1/sessions", json={**sent, "messages": ["a text"]})
        assert first.status_code == 200
        assert served.http.delete(path).json() == {"id": "gone", "dropped": True}
        assert served.http.get(path).status_code == 404
        assert served.http.delete(path).json() == {"id": "gone", "dropped": False}
        assert served.http.post(f"{path}/append", json={}).status_code == 200
        assert served.http.get(path).json()["tokens"] == 0
        served.http.delete(path)
