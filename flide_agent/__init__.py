"""Decisions for agents: typed questions about a history, answered by a decision model."""

from importlib.metadata import version as _version

from flide_agent.exceptions import FlideError, InvalidInput, MissingExtra
from flide_agent.parsing import parse_questions, parse_request
from flide_agent.types import (
    Answer,
    Choice,
    ChoiceAnswer,
    Content,
    Noul,
    NoulAnswer,
    NoulCriteria,
    Question,
    Questions,
    Reuse,
    Score,
    ScoreAnswer,
    SystemOneRequest,
    SystemOneResponse,
    Timing,
    Usage,
)

__version__ = _version("flide-agent")

__all__ = [
    "Answer",
    "Choice",
    "ChoiceAnswer",
    "Content",
    "FlideError",
    "InvalidInput",
    "MissingExtra",
    "Noul",
    "NoulAnswer",
    "NoulCriteria",
    "Question",
    "Questions",
    "Reuse",
    "Score",
    "ScoreAnswer",
    "SystemOneRequest",
    "SystemOneResponse",
    "Timing",
    "Usage",
    "__version__",
    "parse_questions",
    "parse_request",
]
