"""The client over HTTP: the same surface as in process, with the same answers."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest

from flide_agent import (
    AsyncClient,
    Client,
    EngineUnavailable,
    InvalidInput,
    KeyConflict,
    Noul,
    Policy,
    Rule,
    SessionConflict,
    TimedOut,
    TooLarge,
    Unauthorized,
)
from flide_agent.client.calls import Append
from flide_agent.client.http import HttpTransport
from flide_agent.history import ROOT
from flide_agent.session_types import AppendRequest
from tests.agent.sessions.conftest import numbers
from tests.server.conftest import ASKED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from flide_agent import Session
    from flide_engine.engine import Engine
    from tests.server.conftest import Served

PATIENT = 20.0
ALWAYS = Policy(
    rules=[Rule("any", Noul(instructions="Is it bad?"), block=1e-9, tools=["run"])], timeout=20
)
CALL = {"tool": "run", "arguments": {"command": "ls"}}


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    """A client of the shared server."""
    with Client(served.url, timeout=PATIENT) as client:
        yield client


@pytest.fixture
def session(client: Client) -> Session:
    """A session of its own."""
    return client.session()


def local_numbers(engine: Engine, text: str) -> list[float]:
    """What the engine in this process says of a text."""
    return numbers(Client.local(engine).system_one(text, ASKED))


class TestSessions:
    def test_the_surface(self, session: Session, client: Client, engine: Engine) -> None:
        """Every verb, and after each the answers are those on the text."""
        session.append({"role": "user", "content": "Cancel order 48213."}, "and a text")
        head = session.head
        other = session.fork()
        session.append("c")
        assert numbers(session.ask(ASKED)) == pytest.approx(local_numbers(engine, session.text))
        session.rewind(head)
        assert other.text == session.text
        session.sync(["begun", "anew"])
        answers = session.ask(ASKED, messages=["begun", "anew", "and on"], state=CALL)
        assert answers.session.head == session.head
        assert answers.request_id.startswith("req_")
        assert session.text == "begunanewand on"
        again = client.session(session.id)
        assert again.ask(ASKED).session.head == session.head
        assert again.text == session.text
        session.close()
        assert session.text == ""

    def test_decisions(self, session: Session) -> None:
        """Made there, by a policy sent along; a key replays them."""
        session.append("a")
        first = session.decide(ALWAYS, state=CALL, key="k")
        again = session.decide(ALWAYS, state=CALL, key="k")
        assert (first.action, first.rule, first.session) == ("block", "any", session.id)
        assert again.replayed
        assert again.id == first.id
        assert session.decide(ALWAYS, state={"tool": "read"}).action == "allow"
        with pytest.raises(KeyConflict):
            session.ask(ASKED, key="k")

    def test_what_is_lost_is_sent_again(self, served: Served, session: Session) -> None:
        """Unseen by the user, who is told by the reason."""
        session.append("a", "b")
        served.http.delete(f"/v1/sessions/{session.id}")
        answers = session.ask(ASKED)
        assert answers.session.reason == "expired"
        assert session.text == "ab"

    def test_two_writers(self, client: Client) -> None:
        """Each append follows whatever the other one appended."""
        one, two = client.session("shared"), client.session("shared")
        for n in range(3):
            one.append(f"one {n}.")
            two.append(f"two {n}.")
        assert two.text == "one 0.two 0.one 1.two 1.one 2.two 2."

    def test_odd_names(self, client: Client) -> None:
        """Any text names a session."""
        for name in ("a/b", "..", "ä ö?#%", "x/append", "🙂" * 50):
            session = client.session(name)
            session.append("text")
            assert session.ask(ASKED).session.id == name
            session.close()

    def test_no_tenant(self, client: Client) -> None:
        """A caller cannot say whose it is."""
        with pytest.raises(InvalidInput, match="API key"):
            client.session(tenant="other").append("x")

    def test_watching(self, client: Client) -> None:
        """Standing answers come by themselves, and asking is a look-up meanwhile."""
        heard: queue.Queue[Any] = queue.Queue()
        session = client.session()
        stop = session.watch(ASKED, lambda answers: heard.put(answers))
        session.append("a")
        assert heard.get(timeout=PATIENT).session.head == session.head
        assert session.ask(ASKED).session.source == "standing"
        stop()

    def test_watching_ends(self, served: Served, client: Client) -> None:
        """When the session is closed the server asks no more."""
        session = client.session()
        session.watch(ASKED)
        assert "flide_watches 1.0" in served.http.get("/metrics").text
        session.close()
        for _ in range(200):
            if "flide_watches 0.0" in served.http.get("/metrics").text:
                return
            threading.Event().wait(0.02)
        pytest.fail("the stream is still open")

    def test_watching_is_refused(self, client: Client) -> None:
        """Where the server does not take it, at once."""
        with pytest.raises(InvalidInput, match="256"):
            client.session("x" * 300).watch(ASKED)

    def test_awaited(self, served: Served, engine: Engine) -> None:
        """The same names in an event loop, and in another one."""
        client = AsyncClient(served.url, timeout=PATIENT)

        async def use() -> list[float]:
            session = client.session()
            await session.append("a text ")
            heard: asyncio.Queue[Any] = asyncio.Queue()
            loop = asyncio.get_running_loop()
            stop = await session.watch(
                ASKED, lambda answers: loop.call_soon_threadsafe(heard.put_nowait, answers)
            )
            await session.append("and more")
            await asyncio.wait_for(heard.get(), PATIENT)
            stop()
            fork = await session.fork()
            both = await asyncio.gather(session.ask(ASKED), fork.ask(ASKED))
            assert numbers(both[0]) == pytest.approx(numbers(both[1]))
            assert (await session.decide(ALWAYS, state=CALL)).action == "block"
            alone = await client.system_one(session.text, ASKED)
            await client.close()
            return numbers(alone)

        expected = local_numbers(engine, "a text and more")
        for _ in range(2):
            assert asyncio.run(use()) == pytest.approx(expected)


class TestErrors:
    def test_keep_their_kind(self, client: Client, session: Session) -> None:
        """What is raised in process is raised here."""
        with pytest.raises(TooLarge):
            client.system_one("x" * 9_000, ASKED)
        with pytest.raises(TimedOut):
            session.ask(ASKED, timeout=1e-4)
        with pytest.raises(InvalidInput, match="model_x"):
            client.system_one("x", ASKED, model="model_x")
        session.ask(ASKED)

    def test_of_keys(
        self, serve: Callable[..., AbstractContextManager[Served]], keys: Callable[..., Any]
    ) -> None:
        """A wrong key is no answer, so a policy decides as it says for errors."""
        with serve(keys=keys(right="acme")) as served:
            with Client(served.url, api_key="right") as client:
                assert client.system_one("x", ASKED).answers
            with Client(served.url, api_key="wrong") as client:
                with pytest.raises(Unauthorized, match="not known"):
                    client.system_one("x", ASKED)
                assert client.session().decide(ALWAYS).error == "Unauthorized"

    def test_nobody_there(self) -> None:
        """The address is named."""
        with (
            Client("http://127.0.0.1:9", timeout=0.3) as client,
            pytest.raises(EngineUnavailable, match=r"http://127\.0\.0\.1:9"),
        ):
            client.system_one("x", ASKED)

    @pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://\x00", None])
    def test_no_address(self, monkeypatch: pytest.MonkeyPatch, url: str | None) -> None:
        """Said when the client is made."""
        for name in ("FLIDE_BASE_URL", "TYPESAFE_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(InvalidInput):
            Client(url)


def test_an_append_that_is_sent_twice(served: Served) -> None:
    """Counts once, even where it says which head it expects; a stranger's still conflicts."""
    with HttpTransportTwice(served.url) as transport:
        call = Append("twice", AppendRequest(parent=ROOT, expected=ROOT, messages=["tick"]))
        first, second = transport.twice(call)
        assert first == second
        with pytest.raises(SessionConflict) as conflict:
            transport.send(call, tenant=None, timeout=5)
        assert conflict.value.head == first["head"]


class HttpTransportTwice(HttpTransport):
    """Sends a request as a client does that lost the first reply."""

    def __enter__(self) -> HttpTransportTwice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def twice(self, call: Append) -> list[Any]:
        import httpx

        from flide_agent.client.exchange import Exchange

        exchange = Exchange(call, self.base_url, None)
        with httpx.Client(base_url=self.base_url) as client:
            return [client.request(**exchange.parts()).json() for _ in range(2)]
