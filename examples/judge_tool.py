"""An agent that asks for a second opinion on its own draft.

Run it with `python examples/judge_tool.py`, where flide-agent[demo,langchain] is installed. SmolLM2
is too small to judge: read no sense into its numbers.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from flide_agent import Answers, Client, Noul, Score
from langchain_flide import judge_tool

QUESTIONS = {
    "answers": Noul(instructions="Does the text answer what the user asked?"),
    "tone": Score(instructions="How kind is the text?", criteria=["rude", "dry", "kind"]),
}
DRAFT = "Dear Ann, your kettle is replaced at once and free of charge."


class Script(GenericFakeChatModel):
    """Says its lines, whatever it hears."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The lines call the tools."""
        return self


def main(client: Client) -> None:
    """Let the agent judge its draft before it sends it."""
    lines = [
        AIMessage("", tool_calls=[{"name": "judge", "args": {"text": DRAFT}, "id": "1"}]),
        AIMessage(DRAFT),
    ]
    agent: Any = create_agent(
        Script(messages=iter(lines)),
        tools=[judge_tool(QUESTIONS, decisions=client)],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "ann"}}
    result = agent.invoke({"messages": [("user", "My kettle leaks. Ann")]}, config)

    judged = result["messages"][2]
    print("the agent reads:", judged.text)
    answers = Answers.model_validate(judged.artifact)
    print(f"the program reads: tone {answers.scores['tone'].score:.1f} of 2, judged after")
    print(f"{answers.session.tokens} tokens of history in the session {answers.session.id!r}")
    print("agent:", result["messages"][-1].text)


if __name__ == "__main__":
    with Client.local("smollm2") as smollm2:
        main(smollm2)
