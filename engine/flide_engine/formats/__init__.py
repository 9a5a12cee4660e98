"""Text in, tokens out, and probabilities back into answers.

A `Formatter` renders a state and typed questions as the prompts of a model's chat template and cuts
them where the questions begin; `answer` turns the probabilities of a question's options into its
System One answer.
"""

from flide_engine.formats.answers import (
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    ScoreAnswer,
    answer,
    to_json,
)
from flide_engine.formats.growing import GrowingText
from flide_engine.formats.plan import Formatter
from flide_engine.formats.questions import Option, Question, parse_question, parse_questions
from flide_engine.formats.text import Text, render

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "Formatter",
    "GrowingText",
    "NoulAnswer",
    "Option",
    "Question",
    "ScoreAnswer",
    "Text",
    "answer",
    "parse_question",
    "parse_questions",
    "render",
    "to_json",
]
