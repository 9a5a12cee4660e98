"""Promises of the engine made promises of the runtime."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from flide_agent.exceptions import (
    EngineUnavailable,
    FlideError,
    InvalidInput,
    TimedOut,
    TooLarge,
)
from flide_engine import futures
from flide_engine.errors import (
    DeadlineExceeded,
    EngineError,
    InvalidRequest,
    ModelLoadError,
    RequestTooLarge,
)

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")
B = TypeVar("B")

# The first class that fits is taken. ModelLoadError: the vocabulary has no labels for the question.
_MEANING: tuple[tuple[type[EngineError], type[FlideError]], ...] = (
    (RequestTooLarge, TooLarge),
    (InvalidRequest, InvalidInput),
    (ModelLoadError, InvalidInput),
    (DeadlineExceeded, TimedOut),
    (EngineError, EngineUnavailable),
)


def translate(error: BaseException) -> BaseException:
    """What an error of the engine is to its caller."""
    if isinstance(error, EngineError):
        return next(ours for theirs, ours in _MEANING if isinstance(error, theirs))(str(error))
    if isinstance(error, FlideError) or not isinstance(error, Exception):
        return error
    unavailable = EngineUnavailable(f"the engine failed ({type(error).__name__}: {error}).")
    unavailable.__cause__ = error
    return unavailable


def then(inner: Future[A], make: Callable[[A], B], *, shield: bool = False) -> Future[B]:
    """The engine's `then`, with its errors translated."""
    return futures.then(inner, make, shield=shield, translate=translate)


def kept(value: A) -> Future[A]:
    """A promise that is kept already."""
    future: Future[A] = Future()
    future.set_result(value)
    return future


def failed_promise(error: Exception) -> Future[Any]:
    """A promise that cannot be kept."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
