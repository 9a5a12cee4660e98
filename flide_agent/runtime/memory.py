"""What must outlive a process without its text: bands, receipts and where agents last asked.

The history itself is not kept: the client sends it again, and gets the same heads.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from flide_agent.runtime.futures import kept
from flide_agent.session_types import Answers
from flide_cache.records import RecordId

if TYPE_CHECKING:
    from flide_agent.runtime.sessions import Session
    from flide_agent.runtime.tree import SessionKey
    from flide_cache.records import Records

_log = logging.getLogger(__name__)

KEPT_RECEIPTS = 32
"""The newest receipts of a session that are kept; with more the record would grow too long."""


class SessionMemory:
    """Writes sessions' records behind their requests, and reads one when its session begins.

    Args:
        records: where they are kept.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._changed = threading.Condition()
        self._dirty: dict[int, Session] = {}
        self._closed = False
        self._writing = threading.Thread(target=self._write, name="flide-records", daemon=True)
        self._writing.start()

    def recall(self, session: Session) -> None:
        """Fill a session that has just begun with what is known of it. Its lock is held."""
        if session.recalled:
            return
        session.recalled = True
        record = self._records.get(RecordId(*session.tree.key))
        if record is None:
            return
        session.written = record.counter
        try:
            _fill(session, record.document)
        except (KeyError, TypeError, ValueError, ValidationError):
            _log.warning("the record of a session cannot be read, and is left", exc_info=True)

    def note(self, session: Session) -> None:
        """Have a session's record written soon."""
        with self._changed:
            self._dirty[id(session)] = session
            self._changed.notify()

    def forget(self, key: SessionKey) -> None:
        """Forget a session's record."""
        self._records.delete(RecordId(*key))

    def close(self) -> None:
        """Write what is to be written, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._writing.join()

    def _write(self) -> None:
        while True:
            with self._changed:
                while not (self._dirty or self._closed):
                    self._changed.wait()
                if not self._dirty:
                    return
                _, session = self._dirty.popitem()
            with session.tree.lock:
                session.written += 1
                document, counter = _document(session), session.written
            self._records.put(RecordId(*session.tree.key), document, counter)


def _document(session: Session) -> dict[str, Any]:
    with session.bands_lock:
        bands = [[*place, dict(bands)] for place, bands in session.bands.items()]
    receipts = [
        [key, fingerprint, answers.model_dump_json()]
        for key, fingerprint, answers in session.receipts.replies(KEPT_RECEIPTS)
    ]
    return {"bands": bands, "last": dict(session.last), "receipts": receipts}


def _fill(session: Session, document: dict[str, Any]) -> None:
    receipts = [
        (key, fingerprint, Answers.model_validate_json(answers))
        for key, fingerprint, answers in document["receipts"]
    ]
    with session.bands_lock:
        for agent, policy, bands in document["bands"]:
            session.bands[agent, policy] = bands
    session.last.update(document["last"])
    for key, fingerprint, answers in receipts:
        session.receipts.store(key, fingerprint, kept(answers))
