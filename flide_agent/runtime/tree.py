"""One session: a tree of heads, each a history with its text as tokens so far."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from flide_agent import history
from flide_agent.exceptions import SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flide_agent.history import Turn
    from flide_engine.formats import GrowingText

MAX_BRANCHES = 16
"""Ends of histories that one session holds; of more, the one unused for longest goes."""

_SYSTEM = '{"role":"system"'


class SessionKey(NamedTuple):
    """What tells sessions apart. Compared whole: no joined string can be mistaken for another."""

    tenant: str
    id: str
    model: str
    version: int = history.CANONICAL_VERSION


@dataclass(slots=True, eq=False)
class Node:
    """A head: the history that ends with one turn.

    Attributes:
        head: its name.
        parent: the history before that turn; None for the empty one.
        text: the turn's.
        digest: of the turn alone.
        calls: ids of tool calls that later turns may answer.
        text_so_far: the whole history's text as tokens.
        depth: turns in it.
        children: histories that go on from it, by head.
    """

    head: str
    parent: Node | None
    text: str
    digest: str
    calls: tuple[str, ...]
    text_so_far: GrowingText
    depth: int
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def is_system(self) -> bool:
        """Whether its turn is a system prompt."""
        return self.text.startswith(_SYSTEM)


class SessionTree:
    """The heads of one session. Its lock is held by whoever reads or changes it.

    Args:
        key: whose it is.
        empty: the empty text in the engine's tokens.
    """

    def __init__(self, key: SessionKey, empty: GrowingText) -> None:
        self.key = key
        self.lock = threading.RLock()
        self.root = Node(history.ROOT, None, "", "", (), empty, 0)
        self.current = self.root
        self._nodes = {self.root.head: self.root}
        self._ends: OrderedDict[str, Node] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever said in it."""
        return len(self._nodes) == 1

    def node(self, head: str) -> Node:
        """The history of that name.

        Raises:
            SessionNotFound: it is not held.
        """
        try:
            return self._nodes[head]
        except KeyError:
            raise SessionNotFound(
                f"the session {self.key.id!r} holds no head {head!r}: send its whole history again."
            ) from None

    def find(self, head: str | None) -> Node | None:
        """The history of that name, if it is held."""
        return None if head is None else self._nodes.get(head)

    def follow(self, node: Node, turns: Sequence[Turn]) -> tuple[Node, Sequence[Turn]]:
        """Go along turns that are held already.

        Returns:
            The last history on the way that is held, and the turns that follow it.
        """
        heads = history.extend(node.head, [turn.text for turn in turns])
        for place, head in enumerate(heads):
            child = node.children.get(head)
            if child is None:
                return node, turns[place:]
            node = child
        return node, ()

    def extend(self, node: Node, turns: Sequence[Turn]) -> Node:
        """Add turns that are not held after a history; their end becomes the newest head."""
        heads = history.extend(node.head, [turn.text for turn in turns])
        for turn, head in zip(turns, heads, strict=True):
            grown = node.text_so_far.grow(turn.text)
            digest = history.digest(turn.text)
            node = self._enter(
                Node(head, node, turn.text, digest, turn.calls, grown, node.depth + 1)
            )
        self.select(node)
        return node

    def select(self, node: Node) -> None:
        """Make a history the session's newest."""
        self.current = node
        self._ends.pop(node.head, None)
        self._ends[node.head] = node
        while len(self._ends) > MAX_BRANCHES:
            self._prune(self._ends.popitem(last=False)[1])

    def adopt(self, nodes: Iterable[Node]) -> None:
        """Hold another session's history too; its tokens are shared, not computed again."""
        at = self.root
        for node in nodes:
            at = self._enter(
                Node(
                    node.head, at, node.text, node.digest, node.calls, node.text_so_far, node.depth
                )
            )
        self.select(at)

    def _enter(self, node: Node) -> Node:
        assert node.parent is not None
        node.parent.children[node.head] = node
        self._nodes[node.head] = node
        # An end that somebody went on from is not an end any more.
        self._ends.pop(node.parent.head, None)
        return node

    def _prune(self, node: Node) -> None:
        """Drop an old branch down to where another one, or the newest history, needs it."""
        kept = {n.head for n in (self.current, self.root)} | self._ends.keys()
        while not node.children and node.head not in kept and node.parent is not None:
            del self._nodes[node.head], node.parent.children[node.head]
            node = node.parent


def path(node: Node) -> list[Node]:
    """The histories from the first turn to this one."""
    nodes = []
    while node.parent is not None:
        nodes.append(node)
        node = node.parent
    return nodes[::-1]


def text_between(before: Node, node: Node) -> str:
    """What a history says after the last turn it has in common with another one."""
    common = {n.head for n in path(before)} if before.parent else set()
    texts = []
    while node.parent is not None and node.head not in common:
        texts.append(node.text)
        node = node.parent
    return "".join(reversed(texts))
