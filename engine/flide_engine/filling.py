"""What the next round holds: who comes first, how much of a long trunk, and who waits for whom."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flide_engine.core import GRID
from flide_engine.work import Work, merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flide_engine.blocks import Lease
    from flide_engine.core import Request
    from flide_engine.pool import Pool

WORTH_WAITING = 4 * GRID
"""Trunk tokens that another one computes and this one need not, if it waits a round."""

MOST_REFUSED = 8
"""Works that the pool has no room for, after which a round asks it no more."""

EAGER_TOKENS = 512
"""Rows of a round of eager work, and so what a request that comes meanwhile waits for at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """One lease's part of a round.

    Attributes:
        lease: of the request below, or of the next piece of its trunk.
        works: whose trunk it is; several if their trunks are equal.
        piece: whether it is a piece: then more rounds follow.
    """

    lease: Lease
    works: Sequence[Work]
    piece: bool = False

    @property
    def tail(self) -> int:
        """Trunk rows it takes."""
        return len(self.lease.request.trunk) - self.lease.start

    @property
    def rows(self) -> int:
        """Rows it takes."""
        return self.tail + sum(len(b.token_ids) for b in self.lease.request.branches)


def fill(
    works: Sequence[Work], pool: Pool, max_rows: int, flying: Iterable[Share] = ()
) -> list[Share]:
    """Lease what goes into the next round.

    Works are taken by rank as far as rows and pool allow. One that does not fit lets others pass,
    but not if it is the first: where the pool has no room for it beside the rounds under way, the
    round is empty. A trunk with more rows than a round is read in pieces, which leave half of the
    rows to others while there are any. Eager works get a small round, and only if there are no
    others.

    Args:
        works: those that wait, by rank.
        pool: where to lease.
        max_rows: of the round; a single work that cannot be read in pieces may have more.
        flying: what is under way: others may wait for its checkpoints.
    """
    urgent = [work for work in works if not work.eager]
    rows = max_rows if urgent else min(max_rows, EAGER_TOKENS)
    filling = _Filling(urgent or works, pool, rows, flying)
    try:
        filling.run()
    except BaseException:
        for share in filling.shares:
            pool.release(share.lease)
        raise
    return filling.shares


class _Filling:
    """A round while it is filled."""

    def __init__(
        self, works: Sequence[Work], pool: Pool, max_rows: int, flying: Iterable[Share]
    ) -> None:
        self.works = works
        self.pool = pool
        self.max_rows = max_rows
        self.room = max_rows
        others = any(work.left <= max_rows for work in works)
        self.room_for_pieces = max(max_rows // 2, GRID) if others else max_rows
        self.refused = 0
        self.shares: list[Share] = []
        self.taken: set[Work] = set()
        self.coming = {digest for share in flying for digest in self._leaves(share.lease)}
        self.twins: defaultdict[object, list[Work]] = defaultdict(list)
        for work in works:
            self.twins[work.trunk_key].append(work)

    def run(self) -> None:
        """Take works in order."""
        for work in self.works:
            if self.room <= 0 or self.refused == MOST_REFUSED:
                break
            if work in self.taken or self._waits(work):
                continue
            share = self._take(work)
            if share is not None:
                self._add(share)
            elif not self.shares:
                break

    def _add(self, share: Share) -> None:
        self.shares.append(share)
        self.taken.update(share.works)
        self.coming.update(self._leaves(share.lease))
        self.room -= share.rows
        if share.piece:
            self.room_for_pieces -= share.rows

    def _leaves(self, lease: Lease) -> list[bytes]:
        """The digests of the checkpoints that a lease leaves."""
        if self.pool.hybrid:
            return [lease.digests[place // GRID - 1] for place in lease.saves]
        return lease.digests[lease.start // GRID : lease.last_mark // GRID]

    def _waits(self, work: Work) -> bool:
        """Whether another one will soon leave a checkpoint that spares much of this one's trunk."""
        places = range(work.start + WORTH_WAITING, work.limit + 1, GRID)
        digests = work.request.digests
        work.waited = bool(self.coming) and any(
            digests[place // GRID - 1] in self.coming for place in places
        )
        return work.waited

    def _take(self, work: Work) -> Share | None:
        """Lease as much of a work as there is room for; None if there is none."""
        if work.left > self.room and self._worth_a_piece(work):
            work.resume(self.pool.held(work.request))
        while (part := self._part(work)) is not None:
            request, works = part
            lease = self.pool.acquire(request)
            if lease is None:
                self.refused += 1
                return None
            share = Share(lease, works, piece=len(request.trunk) < len(work.request.trunk))
            believed = work.start
            work.resume(lease.start)
            # Where less was held than believed, what is too much for the round is chosen anew.
            if not work.gave_up and (share.rows <= self.room or lease.start >= believed):
                return share
            self.pool.release(lease)
        return None

    def _part(self, work: Work) -> tuple[Request, list[Work]] | None:
        """What to read of a work now, and whose it is."""
        if work.gave_up:
            return None
        if work.left <= self.room:
            works = self._with_twins(work)
            return merged(works), works
        end = min(work.start + min(self.room, self.room_for_pieces), work.limit) // GRID * GRID
        if self._worth_a_piece(work) and end > work.start and not work.whole:
            return work.piece(end), [work]
        return (work.request, [work]) if not self.shares else None

    def _worth_a_piece(self, work: Work) -> bool:
        """A small rest of a round is not."""
        room = min(self.room, self.room_for_pieces)
        return not self.shares or (work.left > self.max_rows and 4 * room >= self.max_rows)

    def _with_twins(self, work: Work) -> list[Work]:
        """A work and those with an equal trunk, unless that has more of it computed."""
        works, room = [work], self.room - work.left
        for twin in self.twins[work.trunk_key]:
            apart = twin is work or twin in self.taken or twin.limit < work.start
            if not apart and twin.asked <= room:
                works.append(twin)
                room -= twin.asked
        return works
