"""Back to an earlier checkpoint, and on another way: the guard finds the branch by itself.

Run it with `python examples/time_travel.py`, where flide-agent[demo,langchain] is installed. The
chat model is a script and SmolLM2 is too small to judge, so the policy only watches.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Client, Noul, Policy, Rule
from flide_agent.policy import MemorySink
from langchain_flide import DecisionMiddleware

WATCH = Policy(
    [Rule("rude", Noul(instructions="Is the user rude?"), block=0.9)], mode="shadow", timeout=60
)
PROMPT = "You work for a shop that sells kettles. " * 8


def main(client: Client, records: MemorySink) -> None:
    """Two turns, back to after the first, and another second turn."""
    lines = ["Hello!", "Turn it off and on.", "Then send it back, please."]
    agent: Any = create_agent(
        GenericFakeChatModel(messages=iter(map(AIMessage, lines))),
        system_prompt=PROMPT,
        checkpointer=InMemorySaver(),
        middleware=[
            DecisionMiddleware(WATCH, decisions=client, on=("input",), system=PROMPT),
        ],
    )
    config: Any = {"configurable": {"thread_id": "kettle"}}
    agent.invoke({"messages": [("user", "Hello")]}, config)
    agent.invoke({"messages": [("user", "My kettle beeps.")]}, config)
    states = agent.get_state_history(config)
    earlier = next(s for s in states if len(s.values["messages"]) == 2 and not s.next)
    result = agent.invoke({"messages": [("user", "My kettle leaks.")]}, earlier.config)

    for record in records.records:
        print(f"{record.new_tokens} tokens computed, {record.reused_tokens} reused")
    print("this way:", " / ".join(message.text for message in result["messages"]))


if __name__ == "__main__":
    sink = MemorySink()
    with Client.local("smollm2", audit=sink, eager=False) as smollm2:
        main(smollm2, sink)
