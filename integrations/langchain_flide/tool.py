"""A tool by which an agent asks a decision model about its own conversation."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime

from flide_agent import Answers, ChoiceAnswer, NoulAnswer, parse_questions
from langchain_flide.messages import messages_of
from langchain_flide.sessions import sessions_of

if TYPE_CHECKING:
    from flide_agent import AsyncClient, Client
    from langchain_flide.model import SessionDecisionModel

DESCRIPTION = (
    "Ask an independent judge about this conversation, and about a text such as a draft if one is "
    "given. It answers fixed questions with probabilities between 0 and 1."
)


def judge_tool(
    questions: Mapping[str, Any],
    *,
    decisions: "SessionDecisionModel | Client | AsyncClient",
    name: str = "judge",
    description: str = DESCRIPTION,
) -> BaseTool:
    """A tool that answers fixed questions about the conversation.

    The agent may add a text to be judged, which is read after the history. It reads the answers as
    JSON; programs find them whole, as `Answers` write them, in the artifact.

    Args:
        questions: by id.
        decisions: who is asked.
        name: of the tool.
        description: what the agent is told of it.

    Raises:
        InvalidInput: a question breaks a rule of the format.
    """
    asked = parse_questions(questions)
    sessions = sessions_of(decisions)

    # Of all forms only this one is both injected and left out when it is called without an agent.
    def judge(text: str = "", runtime: ToolRuntime = None) -> tuple[str, Any]:  # type: ignore[assignment]
        with sessions.borrow(sessions.place()) as session:
            return _results(session.ask(asked, **_about(text, runtime)))

    async def ajudge(text: str = "", runtime: ToolRuntime = None) -> tuple[str, Any]:  # type: ignore[assignment]
        with sessions.aborrow(sessions.place()) as session:
            return _results(await session.ask(asked, **_about(text, runtime)))

    return StructuredTool.from_function(
        judge, ajudge, name=name, description=description, response_format="content_and_artifact"
    )


def _about(text: str, runtime: Any) -> dict[str, Any]:
    messages = [] if runtime is None else messages_of(runtime.state)
    return {"messages": messages, "state": {"text": text} if text else None}


def _results(answers: Answers) -> tuple[str, dict[str, Any]]:
    read = {key: _number(answer) for key, answer in answers.answers.items()}
    return json.dumps(read, ensure_ascii=False), answers.model_dump(mode="json")


def _number(answer: Any) -> Any:
    if isinstance(answer, NoulAnswer):
        return round(answer.noul, 3)
    if isinstance(answer, ChoiceAnswer):
        return {key: round(p, 3) for key, p in answer.probabilities.items()}
    return round(answer.score, 3)
