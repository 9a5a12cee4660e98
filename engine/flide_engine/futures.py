"""Promises that rest on others."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")
B = TypeVar("B")


def then(
    inner: Future[A],
    make: Callable[[A], B],
    *,
    shield: bool = False,
    translate: Callable[[BaseException], BaseException] = lambda error: error,
) -> Future[B]:
    """The promise of what `make` makes of a promised value, in the thread that keeps the first.

    Args:
        inner: the promise it rests on; an error there is an error here.
        make: may raise.
        shield: whether `inner` goes on when this promise is cancelled; else it is cancelled too.
        translate: what an error of either is here.
    """
    outer: Future[B] = Future()

    def keep(done: Future[A]) -> None:
        if done.cancelled():
            outer.cancel()
        if not outer.set_running_or_notify_cancel():
            return
        try:
            outer.set_result(make(done.result()))
        except BaseException as error:
            outer.set_exception(translate(error))

    if not shield:
        outer.add_done_callback(lambda done: inner.cancel() if done.cancelled() else None)
    inner.add_done_callback(keep)
    return outer
