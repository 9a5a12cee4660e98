"""A history as a client holds it: its turns, and the name of every prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flide_agent.history import ROOT, Turn, compare, digest, extend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Path:
    """A history.

    Attributes:
        turns: oldest first.
        heads: the name of the history before each turn, and that of the whole.
    """

    turns: tuple[Turn, ...] = ()
    heads: tuple[str, ...] = (ROOT,)

    @property
    def head(self) -> str:
        """Its name."""
        return self.heads[-1]

    @property
    def calls(self) -> tuple[str, ...]:
        """Ids of tool calls that further turns may answer."""
        return self.turns[-1].calls if self.turns else ()

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(turn.text for turn in self.turns)

    def plus(self, turns: Sequence[Turn]) -> Path:
        """This history and what follows."""
        more = extend(self.head, [turn.text for turn in turns])
        return Path(self.turns + tuple(turns), self.heads + tuple(more))

    def up_to(self, head: str) -> Path | None:
        """The part of it that ends at a head, if it passes there."""
        if head not in self.heads:
            return None
        count = self.heads.index(head)
        return Path(self.turns[:count], self.heads[: count + 1])

    def after_window(self, turns: Sequence[Turn]) -> Path:
        """This history with those of the turns that go on from its end, as `compare` finds them."""
        held = [digest(turn.text) for turn in self.turns]
        found = compare(held, [digest(turn.text) for turn in turns])
        return self.plus(turns[found.common + found.overlap :])


def path_of(texts: Iterable[str]) -> Path:
    """The history that consists of these turns."""
    return Path().plus([Turn(text) for text in texts])
