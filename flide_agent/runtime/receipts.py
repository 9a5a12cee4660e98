"""Replies by idempotency key, so that a step that is run again is not asked again."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from flide_agent.exceptions import KeyConflict

if TYPE_CHECKING:
    from concurrent.futures import Future

    from flide_agent.session_types import Answers, AskRequest

MAX_RECEIPTS = 1024
"""Receipts that one session keeps; of more, the oldest goes."""


class Receipt(NamedTuple):
    """A reply, or the promise of one, and what exactly it replies to."""

    fingerprint: str
    reply: Future[Answers]


class Receipts:
    """The receipts of one session."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, Receipt] = OrderedDict()

    def find(self, key: str, fingerprint: str) -> Future[Answers] | None:
        """The stored reply to the exact repeat of a request.

        Raises:
            KeyConflict: the key was used for something else.
        """
        receipt = self._held.get(key)
        if receipt is None:
            return None
        if receipt.reply.done() and (receipt.reply.cancelled() or receipt.reply.exception()):
            # What failed is no decision: its repeat is asked afresh.
            del self._held[key]
            return None
        if receipt.fingerprint != fingerprint:
            raise KeyConflict(
                f"the key {key!r} was used for another question or another history of this "
                "session: use a new key for every decision."
            )
        return receipt.reply

    def replies(self, count: int) -> list[tuple[str, str, Answers]]:
        """The newest replies that are there, oldest first: key, fingerprint and answers."""
        ready = [
            (key, receipt.fingerprint, receipt.reply.result())
            for key, receipt in self._held.items()
            if receipt.reply.done()
            and not receipt.reply.cancelled()
            and receipt.reply.exception() is None
        ]
        return ready[-count:]

    def store(self, key: str, fingerprint: str, reply: Future[Answers]) -> None:
        """Keep a reply for the repeat of its request."""
        self._held[key] = Receipt(fingerprint, reply)
        while len(self._held) > MAX_RECEIPTS:
            self._held.popitem(last=False)


def fingerprint(head: str, request: AskRequest, local: str) -> str:
    """A digest of what a reply depends on besides the session: the history and what is asked."""
    return digest_json([head, asked(request), local, request.since])


def asked(request: AskRequest) -> str:
    """A digest of what is asked, for whom and about which tool."""
    fields = request.model_dump(mode="json", include={"questions", "tool", "agent"})
    return digest_json([fields, request.policy.digest if request.policy else None])


def digest_json(value: Any) -> str:
    """A digest of a JSON value in which the order of keys counts, as it does to the model."""
    written = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
