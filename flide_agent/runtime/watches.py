"""Standing questions: asked again at every append, by whoever registered them."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from flide_agent.session_types import Answers, AskRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Watch:
    """A standing question.

    Attributes:
        request: what is asked; it has no messages, no state and no key.
        callback: hears every reply, one at a time and in order; None where it is only looked up.
    """

    request: AskRequest
    callback: Callable[[Answers], Any] | None = field(default=None)


class Announcer:
    """Calls back in a thread of its own, so that no listener holds up the engine."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flide-watch")

    def announce(self, watch: Watch, reply: Future[Answers]) -> None:
        """Tell a watch's callback once the reply is there; a failed reply is logged."""
        if (callback := watch.callback) is not None:
            reply.add_done_callback(lambda done: self._thread.submit(_tell, callback, done))

    def close(self) -> None:
        """Tell what is known and stop."""
        self._thread.shutdown(wait=True)


def _tell(callback: Callable[[Answers], Any], done: Future[Answers]) -> None:
    if done.cancelled():
        return
    try:
        callback(done.result())
    except Exception:
        _log.warning("a standing question was not answered or not heard", exc_info=True)
