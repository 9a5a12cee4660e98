"""Digests that name a turn, and a history by all its turns."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

from flide_agent._json import describe
from flide_agent.exceptions import InvalidInput
from flide_agent.history.text import CANONICAL_VERSION, utf8

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES = 20
_HEAD = re.compile(rf"[0-9a-f]{{{2 * _BYTES}}}")

ROOT = blake2b(b"%d" % CANONICAL_VERSION, digest_size=_BYTES, person=b"flide root").hexdigest()
"""The head of the empty history."""


def extend(head: str, texts: Iterable[str]) -> list[str]:
    """The head after each further turn.

    A head is 40 hexadecimal digits. It is the digest of the last turn's text keyed by the head
    before, so it depends on every turn and on where each ends.

    Args:
        head: of the turns before, `ROOT` if there are none.
        texts: of the further turns.

    Raises:
        InvalidInput: the head is none, or a text holds half a surrogate pair.
    """
    if not isinstance(head, str) or not _HEAD.fullmatch(head):
        raise InvalidInput(
            f"{describe(head)} is no head; use ROOT or one that extend returned "
            f"({2 * _BYTES} hexadecimal digits)."
        )
    heads = []
    for text in texts:
        keyed = blake2b(utf8(text), digest_size=_BYTES, key=head.encode(), person=b"flide head")
        head = keyed.hexdigest()
        heads.append(head)
    return heads


def digest(text: str) -> str:
    """The digest of one turn's text by itself: 40 hexadecimal digits, equal for equal texts.

    Raises:
        InvalidInput: the text holds half a surrogate pair.
    """
    return blake2b(utf8(text), digest_size=_BYTES, person=b"flide turn").hexdigest()
