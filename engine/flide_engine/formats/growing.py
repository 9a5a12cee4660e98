"""A text that grows, as tokens: what no later text can change is encoded and hashed once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from flide_engine.blocks import block_digests
from flide_engine.core import GRID, Request
from flide_engine.formats.bare import last_cut
from flide_engine.formats.text import render
from flide_engine.marks import MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flide_engine.core import Tokens
    from flide_engine.formats.template import ChatTemplate


class _Buffer:
    """Token ids, and the digests of their full blocks, to which snapshots add at the end.

    A snapshot's leading ids never change; it counts for itself how many are its own.
    """

    def __init__(self, tenant: str, ids: Tokens, digests: Sequence[bytes] = ()) -> None:
        self._tenant = tenant
        self._ids = ids
        self._used = len(ids)
        self._digests = block_digests(tenant, ids, len(ids) // GRID, digests)
        self._lock = Lock()

    def ids(self, count: int) -> Tokens:
        """The first `count` ids, to be read."""
        view = self._ids[:count]
        view.flags.writeable = False
        return view

    def digests(self, count: int) -> Sequence[bytes]:
        """The digests of the full blocks of the first `count` ids."""
        return self._digests[: count // GRID]

    def extended(self, count: int, more: Tokens) -> _Buffer:
        """A buffer that begins with the first `count` ids and `more`: this one, or else a copy."""
        with self._lock:
            if count == self._used:
                self._append(more)
                return self
        return _Buffer(self._tenant, np.concatenate([self.ids(count), more]), self.digests(count))

    def _append(self, more: Tokens) -> None:
        used = self._used + len(more)
        if used > len(self._ids):
            # Whoever reads the old array still finds there what is theirs.
            room = np.empty(max(used, 2 * self._used), dtype=np.int64)
            room[: self._used] = self._ids[: self._used]
            self._ids = room
        self._ids[self._used : used] = more
        self._digests = block_digests(self._tenant, self._ids, used // GRID, self._digests)
        self._used = used


@dataclass(frozen=True, slots=True, eq=False)
class GrowingText:
    """What was read of a text so far; it never changes, and all threads may grow it.

    Snapshots of one text share its tokens. To grow the newest one costs what is new; to grow an
    older one also copies what comes before.

    Attributes:
        template: whose prompts the text is for.
        tenant: whose text it is.
        buffer: holds the ids up to the last place at which the text can be cut.
        count: how many they are; the opening ids of the template are among them.
        tail: the text after that place.
        trimming: whether nothing but blanks was read, and the template trims them.
    """

    template: ChatTemplate
    tenant: str
    buffer: _Buffer
    count: int
    tail: str
    trimming: bool

    @classmethod
    def begin(cls, template: ChatTemplate, tenant: str) -> GrowingText:
        """The empty text."""
        ids = np.array(template.opening_ids, dtype=np.int64)
        buffer = _Buffer(tenant, ids)
        return cls(template, tenant, buffer, len(ids), template.before, template.trims)

    def grow(self, text: str) -> GrowingText:
        """This text and then `text`.

        Raises:
            InvalidRequest: `text` is not Unicode text.
        """
        more = self.shown(render(text))
        tail = self.tail + more
        grown = replace(self, tail=tail, trimming=self.trimming and not more)
        cut = last_cut(tail) if self.template.cuts else 0
        if not cut:
            return grown
        ids = np.array(self.template.encode_part(tail[:cut]), dtype=np.int64)
        return replace(
            grown,
            buffer=self.buffer.extended(self.count, ids),
            count=self.count + len(ids),
            tail=tail[cut:],
        )

    def shown(self, text: str) -> str:
        """What the template shows of a text after this one that ends with no blank."""
        return text.lstrip() if self.trimming else text

    @property
    def ids(self) -> Tokens:
        """`[count]` all tokens that no later text can change, from the start of the prompt."""
        return self.buffer.ids(self.count)

    @property
    def digests(self) -> Sequence[bytes]:
        """Of the full blocks of `ids`."""
        return self.buffer.digests(self.count)

    def request(self) -> Request | None:
        """What leaves a checkpoint at the last grid point that no later text can change.

        It asks nothing; None where there is no such point.
        """
        end = self.count // GRID * GRID
        if not end:
            return None
        # Nothing can merge with its last tokens, so the margin before them is not needed.
        return Request(self.buffer.ids(end), (), self.tenant, end + MARGIN, self.digests)
