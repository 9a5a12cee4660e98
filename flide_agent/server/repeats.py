"""Requests that come again with the same key get the reply of the first."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from flide_agent.runtime.futures import then

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 10_000
"""Replies that are kept; of more, the oldest goes."""


class Repeats:
    """Replies by idempotency key, for as long as a client may try again. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: OrderedDict[bytes, Future[Any]] = OrderedDict()

    def once(self, parts: tuple[str, ...], body: bytes, do: Callable[[], Any]) -> Any:
        """Do it, or promise what came of it before; a failure is not kept.

        Args:
            parts: the client's key, and whatever else must be the same.
            body: as it was sent.
            do: what is to be done.
        """
        name = hashlib.blake2b(json.dumps(parts).encode() + b"\0" + body, digest_size=16).digest()
        mine: Future[Any] = Future()
        with self._lock:
            known = self._replies.setdefault(name, mine)
            if len(self._replies) > _MOST:
                self._replies.popitem(last=False)
        if known is not mine:
            return then(known, lambda reply: reply, shield=True)
        try:
            reply = do()
        except BaseException as error:
            with self._lock:
                self._replies.pop(name, None)
            mine.set_exception(error)
            raise
        mine.set_result(reply)
        return reply
