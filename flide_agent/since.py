"""Questions that judge only what is new, with the rest as context.

The words go into the question, not into the history: so the history stays reusable, and the answer
is still that of `system_one` on the whole text with the question that `judge_new` returns.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flide_agent.types import Question

_QUOTED = 80
"""Characters of the new part that are quoted, enough to find its place again."""


def judge_new(question: Question, new: str) -> Question:
    """The question, put so that only the end of the text is judged.

    Args:
        question: what is asked.
        new: the text that was added since it was last judged; blank when nothing was.
    """
    words = question.instructions
    asked = words if words is None or isinstance(words, str) else _json(words)
    scoped = f"{_scope(new)} {asked}" if asked else _scope(new)
    return question.model_copy(update={"instructions": scoped})


def _scope(new: str) -> str:
    if not new.strip():
        return (
            "Judge only what is new. Nothing was added since the last judgement: all of the text "
            "above is context, so answer as for an empty addition."
        )
    opening = " ".join(new[: 4 * _QUOTED].split())[:_QUOTED]
    return (
        f"Judge only what is new: the end of the text above, from {_json(opening)} on. "
        "What stands before is context and was judged already."
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
