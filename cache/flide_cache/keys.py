"""Keys of values: 256-bit digests of all that must be equal for bytes to be shared."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import numpy as np

from flide_cache.codec import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeAlias

    import numpy.typing as npt

    from flide_cache.codec import Kind

    Plain: TypeAlias = (
        bool | int | float | str | list["Plain"] | tuple["Plain", ...] | dict[str, "Plain"] | None
    )

BLOCK = 64
"""Tokens that one digest of a chain covers."""

SECRET_BYTES = 16
"""The least that a secret may have."""


def check_key(key: bytes) -> bytes:
    """The key itself, if it is one.

    Raises:
        ValueError: it has another length.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(
            f"a key of {len(key)} bytes was given, and keys have {KEY_BYTES}: make it with "
            "Namespace.key."
        )
    return key


class Namespace:
    """The values of one tenant under one fingerprint: no other namespace has a key in common.

    Args:
        fingerprint: every field that must be equal for bytes to be interchangeable (weights,
            adapter, tokenizer, layer plan, dtypes, rotary parameters, layout, numerics mode, …), as
            plain data. A field added, removed, renamed or changed is another namespace.
        tenant: who may read the values.
        secret: shared by all replicas and by nobody else; at least `SECRET_BYTES` long. Who does
            not have it can neither guess a key nor bind bytes to one.

    Raises:
        ValueError: the secret is too short.
        TypeError: a field is not plain data.
    """

    def __init__(self, fingerprint: Mapping[str, Plain], tenant: str, secret: bytes) -> None:
        if len(secret) < SECRET_BYTES:
            raise ValueError(
                f"a secret of {len(secret)} bytes was given, and at least {SECRET_BYTES} are "
                "needed: use secrets.token_bytes(32) and give all replicas the same."
            )
        # JSON writes unequal plain data unequally: no field can pass for a neighbour, no text for a
        # number. The hash of the secret takes secrets of any length.
        text = json.dumps([dict(fingerprint), tenant], sort_keys=True, separators=(",", ":"))
        self.tenant = tenant
        self.root = hashlib.blake2b(
            text.encode(),
            key=hashlib.blake2b(secret).digest(),
            digest_size=KEY_BYTES,
            person=b"flide namespace",
        ).digest()

    def key(self, kind: Kind, digest: bytes) -> bytes:
        """The key of a value; `digest` names all tokens up to its end (a chained block digest).

        Pages and states of one place have different keys.
        """
        return hashlib.blake2b(
            bytes([kind]) + digest, key=self.root, digest_size=KEY_BYTES, person=b"flide key"
        ).digest()

    def chain(self, tokens: npt.NDArray[np.integer[Any]]) -> list[bytes]:
        """The digest of each full block of `BLOCK` tokens, chained over all before it."""
        count = len(tokens) // BLOCK
        raw = np.ascontiguousarray(tokens[: count * BLOCK], dtype="<i8").tobytes()
        size = BLOCK * 8
        digest, digests = self.root, []
        for start in range(0, len(raw), size):
            block = raw[start : start + size]
            digest = hashlib.blake2b(block, key=digest, digest_size=KEY_BYTES).digest()
            digests.append(digest)
        return digests

    def __repr__(self) -> str:
        return f"Namespace(tenant={self.tenant!r})"
