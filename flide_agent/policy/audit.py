"""The audit: one record a decision, whether it was to allow, to review or to block.

A sink never stands between a decision and its caller: what goes wrong in it is counted and logged.
Records hold no text (states, instructions, arguments, words of errors) unless that is asked for.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from flide_agent.exceptions import InvalidInput
from flide_agent.policy.decisions import unasked
from flide_agent.types import ChoiceAnswer, NoulAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flide_agent.policy.decisions import Decision
    from flide_agent.types import Answer, Question

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A decision and its circumstances.

    Attributes:
        decision: what was decided.
        tenant: for whom.
        new_tokens: computed for it.
        reused_tokens: taken from checkpoints.
        ms: until it was there.
        state: what was judged besides the history, such as the call. It is text.
        questions: that were asked, by rule id. They are text.
    """

    decision: Decision
    tenant: str | None = None
    new_tokens: int | None = None
    reused_tokens: int | None = None
    ms: float | None = None
    state: Any = None
    questions: Mapping[str, Question] | None = None

    def fields(self, *, text: bool = False) -> dict[str, Any]:
        """The record as JSON fields; with `text`, also what was judged and asked."""
        decision = self.decision
        reason = decision.reason
        if decision.error is not None and not text:
            reason = unasked(decision.error)
        fields: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "id": decision.id,
            "action": decision.action,
            "would": decision.would,
            "rule": decision.rule,
            "p": decision.p,
            "reason": reason,
            "degraded": decision.degraded,
            "shadow": decision.shadow,
            "replayed": decision.replayed,
            "policy": decision.policy,
            "model": decision.model,
            "tenant": self.tenant,
            "session": decision.session,
            "head": decision.head,
            "tool": decision.tool,
            "probabilities": {k: _numbers(a) for k, a in (decision.answers or {}).items()},
            "new_tokens": self.new_tokens,
            "reused_tokens": self.reused_tokens,
            "ms": self.ms,
        }
        if text:
            questions = {k: q.model_dump(mode="json") for k, q in (self.questions or {}).items()}
            fields |= {"state": self.state, "questions": questions}
        return fields


def _numbers(answer: Answer) -> float | dict[str, float]:
    """What rules look at: the probability of yes, of every option, or the expected score."""
    if isinstance(answer, NoulAnswer):
        return answer.noul
    return answer.probabilities if isinstance(answer, ChoiceAnswer) else answer.score


class AuditSink(Protocol):
    """Hears every decision."""

    def write(self, record: AuditRecord) -> None:
        """Take a record. It must not raise: derive from `CountingSink` to be sure of it."""


class CountingSink(ABC):
    """A sink whose failures are counted and, the first time, logged.

    Attributes:
        failures: records that were lost.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._lock = threading.Lock()

    def write(self, record: AuditRecord) -> None:
        """Take a record; one at a time, whichever threads they come from. Never raises."""
        try:
            with self._lock:
                self._emit(record)
        except Exception as error:
            with self._lock:
                self.failures += 1
                first = self.failures == 1
            if first:
                # Neither the record nor the error's words, which may quote it.
                kind = type(error).__name__
                why = f"{kind}: {error.strerror}" if isinstance(error, OSError) else kind
                _log.warning(
                    "The record of a decision was lost (%s); further ones are only counted, in "
                    "the sink's `failures`.",
                    why,
                )

    @abstractmethod
    def _emit(self, record: AuditRecord) -> None:
        """Store a record, or raise."""


class MemorySink(CountingSink):
    """Keeps the records in a list, for tests.

    Attributes:
        records: oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[AuditRecord] = []

    def _emit(self, record: AuditRecord) -> None:
        self.records.append(record)


class JsonLines(CountingSink):
    """Appends one JSON object a line to a file or a text stream.

    A file is opened for every line, so it may be rotated or removed at any time, and a line is one
    write, so several processes may share it. It is made readable for its owner alone.

    Args:
        target: a path, or a text stream such as `sys.stderr`, which stays the caller's to close.
        text: also write what was judged and asked.

    Raises:
        InvalidInput: the file cannot be opened.
    """

    def __init__(self, target: str | os.PathLike[str] | TextIO, *, text: bool = False) -> None:
        super().__init__()
        self._target = target
        self._text = text
        self._torn = False
        if isinstance(target, (str, os.PathLike)):
            try:
                os.close(_open(target))
            except OSError as error:
                raise InvalidInput(
                    f"the audit file {os.fspath(target)!r} cannot be opened ({error.strerror}); "
                    "name a file in a folder that exists and may be written to."
                ) from error

    def _emit(self, record: AuditRecord) -> None:
        # ASCII: nothing that a state may hold, half characters included, can break the line.
        line = json.dumps(record.fields(text=self._text), separators=(",", ":"), default=repr)
        if isinstance(self._target, (str, os.PathLike)):
            self._append(self._target, line.encode() + b"\n")
        else:
            self._target.write(line + "\n")
            self._target.flush()

    def _append(self, path: str | os.PathLike[str], line: bytes) -> None:
        if self._torn:
            # A full disk took only a part of the line before; that part gets a line of its own.
            line = b"\n" + line
        file = _open(path)
        try:
            written = os.write(file, line)
        finally:
            os.close(file)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, "only a part of the line was taken")


def _open(path: str | os.PathLike[str]) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
