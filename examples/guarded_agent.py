"""An agent whose tool calls a policy allows, holds for a person, or blocks.

Run it with `python examples/guarded_agent.py`, where flide-agent[demo,langchain] is installed.
The chat model is a script, and SmolLM2 is too small to judge: so each threshold here lies where its
rule acts whatever the model says. With a real model they are numbers such as .5 and .9.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from flide_agent import Client, Noul, Policy, Rule
from langchain_flide import DecisionMiddleware

ALWAYS, NEVER = 0.0, 1.0

POLICY = Policy(
    [
        Rule("reads", Noul(instructions="Does it expose data?"), block=NEVER, tools=["look_up"]),
        Rule("money", Noul(instructions="Is it unusual?"), review=ALWAYS, tools=["refund"]),
        Rule("harm", Noul(instructions="Does it destroy data?"), block=ALWAYS, tools=["delete_*"]),
    ],
    timeout=60,
)


@tool
def look_up(order: str) -> str:
    """Find an order."""
    return f"{order}: paid 40, never arrived"


@tool
def refund(order: str, amount: float) -> str:
    """Give money back."""
    return f"{order}: {amount:g} given back"


@tool
def delete_account(customer: str) -> str:
    """Delete a customer."""
    return f"{customer} deleted"


class Script(GenericFakeChatModel):
    """Says its lines, whatever it hears."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The lines call the tools."""
        return self


def call(name: str, **args: Any) -> AIMessage:
    """A line that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])


def main(client: Client) -> None:
    """Run the agent until it waits for a person, approve, and show what happened."""
    lines = [
        call("look_up", order="A7"),
        call("refund", order="A7", amount=40),
        call("delete_account", customer="Ann"),
        AIMessage("Your money is on its way."),
    ]
    agent: Any = create_agent(
        Script(messages=iter(lines)),
        tools=[look_up, refund, delete_account],
        system_prompt="You work for a shop.",
        checkpointer=InMemorySaver(),
        middleware=[DecisionMiddleware(POLICY, decisions=client)],
    )
    config = {"configurable": {"thread_id": "ann"}}

    result = agent.invoke({"messages": [("user", "My order A7 never arrived.")]}, config)
    (pending,) = result["__interrupt__"]
    print("waits:", pending.value["action_requests"][0]["description"].splitlines()[-1])

    result = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    for message in result["messages"]:
        if message.type == "tool":
            print(f"{message.name} ({message.status}): {message.text}")
    print("agent:", result["messages"][-1].text)


if __name__ == "__main__":
    with Client.local("smollm2") as smollm2:
        main(smollm2)
