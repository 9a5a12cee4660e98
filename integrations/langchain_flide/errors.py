"""Errors that are both ours and LangChain's: code that catches either goes on working.

flide_agent          langchain_core.exceptions
TooLarge             ContextOverflowError
InvalidInput         ModelInvalidRequestError
TimedOut             ModelTimeoutError
EngineUnavailable    ModelConnectionError
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langchain_core import exceptions as theirs

from flide_agent import EngineUnavailable, FlideError, InvalidInput, TimedOut, TooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator


class DecisionTooLarge(TooLarge, theirs.ContextOverflowError):
    """The history can never be judged here."""


class DecisionRefused(InvalidInput, theirs.ModelInvalidRequestError):
    """The state or a question breaks a rule."""


class DecisionTimedOut(TimedOut, theirs.ModelTimeoutError):
    """There was no answer in the time given."""


class DecisionUnavailable(EngineUnavailable, theirs.ModelConnectionError):
    """The engine cannot answer."""


# The first class that fits is taken.
_BOTH: tuple[tuple[type[FlideError], type[FlideError]], ...] = (
    (TooLarge, DecisionTooLarge),
    (InvalidInput, DecisionRefused),
    (TimedOut, DecisionTimedOut),
    (EngineUnavailable, DecisionUnavailable),
)


@contextmanager
def as_model_errors() -> Iterator[None]:
    """Raise what goes wrong inside as an error of LangChain's too."""
    try:
        yield
    except FlideError as error:
        both = next((new for old, new in _BOTH if isinstance(error, old)), None)
        if both is None:
            raise
        raise both(str(error)) from error
