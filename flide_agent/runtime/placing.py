"""Where in a session's tree a history belongs, and how it relates to the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flide_agent import history
from flide_agent.exceptions import SessionConflict
from flide_agent.history import messages_to_history
from flide_agent.runtime.tree import path

if TYPE_CHECKING:
    from flide_agent.runtime.tree import Node, SessionTree
    from flide_agent.session_types import AppendRequest, Reason


class Placed(NamedTuple):
    """A history in its tree.

    Attributes:
        node: where it ends.
        reason: how it relates to the one before.
        diverged_at: how many leading turns are as before, where it did not just go on.
        before: the last history on its way that was held already.
    """

    node: Node
    reason: Reason
    diverged_at: int | None
    before: Node


def place(tree: SessionTree, request: AppendRequest) -> Placed:
    """Put what happened into the tree; if anything did, its end becomes the newest head.

    Raises:
        SessionConflict: the newest head is not the one that the request expects.
        SessionNotFound: the parent is not held.
        InvalidInput: a message cannot be read.
    """
    if request.expected is not None and request.expected != tree.current.head:
        raise SessionConflict(
            f"the session {tree.key.id!r} stands at {tree.current.head!r}, not at "
            f"{request.expected!r}: somebody appended to it; go on from its head.",
            tree.current.head,
        )
    start = tree.current if request.parent is None else tree.node(request.parent)
    turns = messages_to_history(request.messages, calls=start.calls)
    was_new = tree.is_new
    reference = tree.find(request.held) or tree.current
    before, rest = tree.follow(start, turns)
    if not rest and not request.whole and before in path(tree.current):
        # Nothing new: a question about an earlier head is no rewind.
        return Placed(before, "appended", None, before)
    if was_new:
        reason: Reason = "new" if request.held in (None, history.ROOT) else "expired"
        return Placed(tree.extend(before, rest), reason, None, before)
    way = path(before)
    if not before.children or reference is tree.root or reference in way:
        return Placed(tree.extend(before, rest), "appended", None, before)
    held = [node.digest for node in path(reference)]
    given = [node.digest for node in way] + [history.digest(turn.text) for turn in rest]
    found = history.compare(held, given)
    # Turns deleted in the middle leave a tail too; before a window only system prompts are kept.
    windowed = found.overlap and all(node.is_system for node in way[: found.common])
    if windowed and request.history == "full" and start.depth <= found.common:
        known = found.common + found.overlap - start.depth
        node = tree.extend(*tree.follow(reference, turns[known:]))
        return Placed(node, "windowed", found.common, reference)
    reason = "summarised" if request.summary else "windowed" if windowed else "edited"
    return Placed(tree.extend(before, rest), reason, found.common, before)
