"""Two agents in one thread: one session, a branch for each.

Run it with `python examples/two_agents.py`, where flide-agent[demo,langchain] is installed. The
chat models are scripts and SmolLM2 is too small to judge, so the policy only watches.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Client, Noul, Policy, Rule
from flide_agent.policy import MemorySink
from langchain_flide import DecisionMiddleware

WATCH = Policy(
    [Rule("off_task", Noul(instructions="Is the last call outside the task?"), block=0.9)],
    mode="shadow",
    timeout=60,
)


@tool
def search(words: str) -> str:
    """Search the shop's pages."""
    return f"two pages about {words}"


class Script(GenericFakeChatModel):
    """Says its lines, whatever it hears."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The lines call the tools."""
        return self


def call(name: str, **args: Any) -> AIMessage:
    """A line that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])


def build(client: Client) -> Any:
    """A writer that lets a researcher search; each has a guard of its own."""
    found = [call("search", words="kettles"), call("search", words="leaks"), AIMessage("Seals.")]
    researcher: Any = create_agent(
        Script(messages=iter(found)),
        tools=[search],
        name="researcher",
        system_prompt="You search.",
        middleware=[DecisionMiddleware(WATCH, decisions=client, on=("tool",))],
    )

    @tool
    def research(topic: str) -> str:
        """Let the researcher find out about a topic."""
        words: str = researcher.invoke({"messages": [("user", topic)]})["messages"][-1].text
        return words

    written = [call("research", topic="Why do kettles leak?"), AIMessage("It is the seal.")]
    return create_agent(
        Script(messages=iter(written)),
        tools=[research],
        name="writer",
        system_prompt="You write.",
        checkpointer=InMemorySaver(),
        middleware=[DecisionMiddleware(WATCH, decisions=client)],
    )


def main(client: Client, records: MemorySink) -> None:
    """Run both, and show what each decision took."""
    writer = build(client)
    config = {"configurable": {"thread_id": "kettles"}}
    result = writer.invoke({"messages": [("user", "Why does it leak?")]}, config)

    for record in records.records:
        decision = record.decision
        print(
            f"session {decision.session}, head {(decision.head or '')[:8]}: "
            f"{decision.tool or 'no call'}, {record.new_tokens} tokens computed, "
            f"{record.reused_tokens} reused"
        )
    print("agent:", result["messages"][-1].text)


if __name__ == "__main__":
    sink = MemorySink()
    with Client.local("smollm2", audit=sink, eager=False) as smollm2:
        main(smollm2, sink)
