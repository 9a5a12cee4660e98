"""What a session does, as steps that know nothing of threads, event loops or wires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from flide_agent.client.calls import Append, Ask, Describe, Drop, Fork, Rewind
from flide_agent.client.path import Path, path_of
from flide_agent.exceptions import InvalidInput, SessionConflict, SessionNotFound
from flide_agent.history import ROOT, messages_to_history, system_turn
from flide_agent.session_types import AppendRequest, AskRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flide_agent.client.calls import Call
    from flide_agent.client.drive import Steps
    from flide_agent.session_types import Answers, SessionDescription, SessionInfo

_R = TypeVar("_R", AppendRequest, AskRequest)

_TRIES = 100
"""Times that an append is put after what other writers appended in the meantime."""


class Verbs:
    """The client's side of one session: its history, and which heads the other side has.

    Args:
        session_id: the session's key.
        system: the system prompt, which is the first turn.
        ttl: seconds without use after which the other side may drop it.
        history: what to do with histories whose front is missing, as `AppendRequest` says.
    """

    def __init__(
        self, session_id: str, system: str | None, ttl: float | None, history: str
    ) -> None:
        self.id = session_id
        self.ttl = ttl
        self.history = history
        self.tokens = 0
        self._opening = () if system is None else (system_turn(system),)
        self._path = Path()
        self._acked: set[str] = set()
        self._held: str | None = None
        self._unheard: Path | None = None

    @property
    def path(self) -> Path:
        """The history as it stands."""
        return self._path

    def append(self, messages: Sequence[Any], parent: str | None) -> Steps[SessionInfo]:
        """Put messages after a head, or after the session's newest."""
        if parent is not None:
            before = yield from self._at(parent)
            path = before.plus(messages_to_history(messages, calls=before.calls))
            return (yield from self._append(path, {}))
        for _ in range(_TRIES):
            before = self._begun()
            path = before.plus(messages_to_history(messages, calls=before.calls))
            # Whoever awaits this may give up while the other side does it all the same.
            unheard, self._unheard = self._unheard, path
            try:
                info = yield from self._append(path, {"expected": self._path.head})
            except SessionConflict as conflict:
                last = conflict
                if unheard is not None and conflict.head == unheard.head == path.head:
                    info = yield from self._append(path, {"whole": True})
                else:
                    yield from self._catch_up(conflict.head)
                    continue
            self._unheard = None
            return info
        raise last

    def sync(self, messages: Sequence[Any]) -> Steps[SessionInfo]:
        """Make the history what is given whole."""
        return (yield from self._append(self._whole(messages), {"whole": True}))

    def ask(self, messages: Sequence[Any] | None, fields: dict[str, Any]) -> Steps[Answers]:
        """Ask about the history, or about the one that is given whole."""
        if messages is not None:
            return (yield from self._ask(self._whole(messages), {**fields, "whole": True}))
        if not self._path.turns:
            # Nothing was said through this object: then it is about what the session holds.
            yield from self._look()
        return (yield from self._ask(self._begun(), fields))

    def fork(self, at: str | None) -> Steps[tuple[str, Path]]:
        """The key of a new session, and the history it begins with."""
        path = self._path if at is None else (yield from self._at(at))
        made: SessionDescription = yield from self._where_held(Fork(self.id, path.head))
        return made.id, path

    def rewind(self, to: str) -> Steps[None]:
        """Go back to an earlier head."""
        path = yield from self._at(to)
        described: SessionDescription = yield from self._where_held(Rewind(self.id, to))
        self.adopt(path)
        self.tokens = described.tokens

    def close(self) -> Steps[None]:
        """Let the other side forget the session."""
        yield Drop(self.id)
        self._path, self._acked, self._held, self.tokens = Path(), set(), None, 0

    def sibling(self, session_id: str, path: Path) -> Verbs:
        """The client's side of a fork."""
        other = Verbs(session_id, None, self.ttl, self.history)
        other._opening = self._opening
        other.adopt(path)
        other.tokens = self.tokens
        return other

    def twin(self) -> Verbs:
        """Another client's side of the same session, which knows the same."""
        other = Verbs(self.id, None, self.ttl, self.history)
        other._opening, other._path, other._held = self._opening, self._path, self._held
        other._acked, other.tokens = set(self._acked), self.tokens
        return other

    def adopt(self, path: Path) -> None:
        """Begin with a history that the other side has."""
        self._path, self._held = path, path.head
        self._acked.update(path.heads)

    def _begun(self) -> Path:
        return self._path if self._path.turns else self._path.plus(self._opening)

    def _whole(self, messages: Sequence[Any]) -> Path:
        return Path().plus((*self._opening, *messages_to_history(messages)))

    def _append(self, path: Path, fields: dict[str, Any]) -> Steps[SessionInfo]:
        info: SessionInfo = yield from self._send(path, Append, AppendRequest, fields)
        self.tokens = info.tokens
        yield from self._settle(path, info.head)
        return info

    def _ask(self, path: Path, fields: dict[str, Any]) -> Steps[Answers]:
        answers: Answers = yield from self._send(path, Ask, AskRequest, fields)
        self.tokens = answers.session.tokens
        yield from self._settle(path, answers.session.head)
        return answers

    def _send(
        self,
        path: Path,
        call: Callable[[str, _R], Call],
        request: type[_R],
        fields: dict[str, Any],
    ) -> Steps[Any]:
        """Send what the other side lacks of a history; all of it if it lost the rest."""
        known = max((i for i, head in enumerate(path.heads) if head in self._acked), default=0)
        try:
            return (yield call(self.id, self._request(path, known, request, fields)))
        except SessionNotFound:
            self._acked.clear()
            if "expected" in fields:
                fields = {**fields, "expected": ROOT}
            return (yield call(self.id, self._request(path, 0, request, fields)))

    def _request(self, path: Path, known: int, request: type[_R], fields: dict[str, Any]) -> _R:
        news = path.turns[known:]
        try:
            return request(
                parent=path.heads[known],
                held=self._held,
                messages=[turn.text for turn in news],
                summary=any(turn.summary for turn in news),
                history=self.history,
                ttl=self.ttl,
                **fields,
            )
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            name = ".".join(map(str, fault["loc"])) or "the request"
            raise InvalidInput(f"{name} is {fault['input']!r}: {fault['msg']}.") from error

    def _settle(self, path: Path, head: str) -> Steps[None]:
        """Take the history that the other side made of the one sent."""
        if head != path.head:
            full = self._path.after_window(path.turns)
            if full.head != head:
                yield from self._catch_up(head)
                return
            path = full
        self.adopt(path)

    def _at(self, head: str) -> Steps[Path]:
        """The history at a head."""
        path = self._path.up_to(head)
        if path is None:
            described: SessionDescription = yield Describe(self.id, head)
            path = path_of(described.turns or ())
        return path

    def _look(self) -> Steps[None]:
        """Take over what the session holds already, if it does."""
        try:
            described: SessionDescription = yield Describe(self.id)
        except SessionNotFound:
            return
        self.adopt(path_of(described.turns or ()))

    def _catch_up(self, head: str) -> Steps[None]:
        """Take over a history that somebody else wrote."""
        path = yield from self._at(head)
        self.adopt(path)

    def _where_held(self, call: Call) -> Steps[Any]:
        """Do what needs the other side to hold the history: if it does not, send it first."""
        try:
            return (yield call)
        except SessionNotFound:
            self._acked.clear()
            yield from self._append(self._path, {})
            return (yield call)
