"""The words of a prompt: one user turn with the state, one question about it and its options.

The wording is that of vLLM's decision endpoint for chat models. A question's id is the caller's
business and never part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flide_engine.formats.text import one_line, render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.formats.questions import Question

QUESTION = "\n\nQuestion:"
"""Stands between the state and a question.

The blank after it belongs to the question, so that a pre-token ends here.
"""

LETTERS = 26

_UNSAID = {
    "choice": "Which of these options fits best?",
    "noul": "Which of these outcomes holds?",
    "score": "Which of these levels fits best?",
}


def question_text(question: Question, words: Sequence[str]) -> str:
    """What follows `QUESTION` in the prompt of this question alone.

    Args:
        question: what is asked.
        words: the label word of every option, as the model should answer it.
    """
    instructions = render(question.instructions) or _UNSAID[question.kind]
    lines = [_option_line(question, index, word) for index, word in enumerate(words)]
    return "\n".join((f" {instructions}", *lines, _reply(question, words)))


def _option_line(question: Question, index: int, word: str) -> str:
    option = question.options[index]
    description = one_line(option.description)
    if question.kind == "score":
        return f"{word}: {description}"
    line = word if question.kind == "noul" else f"{word}: {one_line(option.name)}"
    return f"{line} - {description}" if description else line


def _reply(question: Question, words: Sequence[str]) -> str:
    if question.kind == "noul":
        return f"Answer with {words[0]} or {words[1]} only."
    if question.kind == "score":
        return "Answer with the number of one level only."
    noun = "letter" if len(words) <= LETTERS else "label"
    return f"Answer with the {noun} of one option only."
