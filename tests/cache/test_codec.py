"""Headers, keys and arguments: what is not what was written, or cannot be, is told apart."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flide_cache.base import Want
from flide_cache.codec import (
    HEADER_BYTES,
    Kind,
    Label,
    digest,
    join,
    octets,
    open_part,
    open_small,
    seal,
)
from flide_cache.errors import Damaged, Foreign, StoreError
from flide_cache.keys import BLOCK, Namespace
from flide_cache.testing import value_of

if TYPE_CHECKING:
    from flide_cache.keys import Plain

KEYS = st.binary(min_size=32, max_size=32)
LABELS = st.builds(
    Label,
    kind=st.sampled_from(list(Kind)),
    position=st.integers(0, 2**32 - 1),
    nbytes=st.just(0),
    index=st.integers(0, 2**16 - 1),
    count=st.integers(0, 2**32 - 1),
    total=st.integers(0, 2**64 - 1),
)
FIELDS: dict[str, Plain] = {
    "format": 1,
    "weights": "sha256:0badcafe",
    "generation": 0,
    "adapter": "",
    "salt": "",
    "tokenizer": "t",
    "layers": [["full", 8, 2, 64], ["delta", 16, 128, 128, 4]],
    "dtypes": {"state": "float32", "pages": "bfloat16"},
    "rope": {"theta": 1e7, "scaling": None, "partial": 0.25},
    "layout": 3,
    "ranks": [1, 0],
    "invariant": False,
}


class TestParts:
    """A header and raw bytes."""

    @given(key=KEYS, label=LABELS, payload=st.binary(max_size=300))
    def test_what_was_joined_opens(self, key: bytes, label: Label, payload: bytes) -> None:
        """To the same bytes, behind 64 bytes of header, without a copy."""
        label = replace(label, nbytes=len(payload))
        blob = join(key, label, payload)

        assert len(blob) == HEADER_BYTES + len(payload)
        assert blob[HEADER_BYTES:] == payload
        assert bytes(open_part(key, label, blob)) == payload
        assert open_part(key, label, blob).obj is blob
        assert blob[:HEADER_BYTES] == seal(key, label, digest(payload))

    @given(key=KEYS, label=LABELS, payload=st.binary(max_size=60), data=st.data())
    def test_any_change_is_found(
        self, key: bytes, label: Label, payload: bytes, data: st.DataObject
    ) -> None:
        """One flipped bit, anywhere."""
        label = replace(label, nbytes=len(payload))
        blob = bytearray(join(key, label, payload))
        blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))

        with pytest.raises((Damaged, Foreign)):
            open_part(key, label, bytes(blob))

    @given(key=KEYS, label=LABELS, payload=st.binary(max_size=60), blob=st.binary(max_size=200))
    def test_noise_is_no_part(self, key: bytes, label: Label, payload: bytes, blob: bytes) -> None:
        """Nor is a part that was cut."""
        label = replace(label, nbytes=len(payload))
        whole = join(key, label, payload)
        with pytest.raises(StoreError):
            open_part(key, label, blob)
        with pytest.raises(StoreError):
            open_part(key, label, whole[: len(blob) % len(whole)])

    @given(key=KEYS, other=KEYS, label=LABELS, wanted=LABELS)
    def test_a_part_opens_for_its_own_key_and_place_only(
        self, key: bytes, other: bytes, label: Label, wanted: Label
    ) -> None:
        """Foreign in any of them is foreign."""
        assume(key != other)
        assume(label != wanted)
        blob = join(key, label, b"")
        for asked in ((other, label), (key, wanted), (other, wanted)):
            with pytest.raises(Foreign):
                open_part(*asked, blob)

    def test_small_values_have_a_limit(self) -> None:
        """Known before anything reads them."""
        key = secrets.token_bytes(32)
        blob = join(key, Label.whole(Kind.RECORD, 0, 101), bytes(101))

        assert bytes(open_small(key, Kind.RECORD, blob, 101)) == bytes(101)
        with pytest.raises(Damaged, match="at most 100"):
            open_small(key, Kind.RECORD, blob, 100)
        with pytest.raises(Foreign):
            open_small(key, Kind.MANIFEST, blob, 101)

    def test_arrays_are_seen_as_bytes(self) -> None:
        """Of any type and shape, if contiguous."""
        array = np.arange(12, dtype=np.float32).reshape(3, 4)

        assert bytes(octets(array.data)) == array.tobytes()
        with pytest.raises(TypeError):
            octets(array[:, ::2].data)


class TestNamespace:
    """Keys."""

    @pytest.mark.parametrize("field", list(FIELDS))
    def test_every_field_counts(self, field: str) -> None:
        """Changed, missing or under another name: no key in common."""
        secret = secrets.token_bytes(32)
        ours = Namespace(FIELDS, "t", secret)
        value = FIELDS[field]
        rest = {name: value for name, value in FIELDS.items() if name != field}
        others: list[dict[str, Plain]] = [
            {**FIELDS, field: [value]},
            {**FIELDS, field: f"{value}'"},
            rest,
            {**rest, f"{field}_": value},
        ]
        place = secrets.token_bytes(32)
        for other in others:
            theirs = Namespace(other, "t", secret)
            assert theirs.root != ours.root
            assert theirs.key(Kind.STATE, place) != ours.key(Kind.STATE, place)

    @given(
        ours=st.dictionaries(st.text(max_size=4), st.text(max_size=6), max_size=4),
        theirs=st.dictionaries(st.text(max_size=4), st.text(max_size=6), max_size=4),
        us=st.text(max_size=5),
        them=st.text(max_size=5),
    )
    def test_equal_keys_have_equal_names(
        self, ours: dict[str, str], theirs: dict[str, str], us: str, them: str
    ) -> None:
        """No value can pass for its neighbour, a tenant or a name: all that differs counts."""
        secret = b"s" * 16
        same = Namespace({**ours}, us, secret).root == Namespace({**theirs}, them, secret).root

        assert same == ((ours, us) == (theirs, them))

    @given(a=st.text(min_size=1, max_size=6), b=st.text(min_size=1, max_size=6))
    def test_a_value_in_another_field_is_another_namespace(self, a: str, b: str) -> None:
        """As a salt and an adapter of one name, and their concatenations."""
        pairs = {(a, b), (b, a), (a + b, ""), ("", a + b), (a, ""), ("", a)}
        roots = {Namespace({"adapter": x, "salt": y}, "", b"s" * 16).root for x, y in pairs}

        assert len(roots) == len(pairs)

    def test_types_count(self) -> None:
        """A number is no text, a whole one no fraction, a truth no number, nothing no word."""
        values: list[Plain] = [1, "1", 1.0, True, [1], {"1": 1}, None, "null", 0, False, "", []]
        roots = {Namespace({"x": value}, "", b"s" * 16).root for value in values}

        assert len(roots) == len(values)

    def test_another_secret_is_another_namespace(self) -> None:
        """Also one that begins like it, and a long one."""
        secret = secrets.token_bytes(64)
        roots = {
            Namespace(FIELDS, "t", some).root
            for some in (secret, secret[:63], secret + b"\0", secret * 9)
        }

        assert len(roots) == 4

    def test_a_short_secret_is_an_error(self) -> None:
        """Who can guess it can write other people's values."""
        with pytest.raises(ValueError, match="at least 16"):
            Namespace(FIELDS, "t", b"short")

    def test_neither_secret_nor_root_is_printed(self) -> None:
        """Logs are read by many."""
        secret = secrets.token_bytes(16)
        space = Namespace(FIELDS, "t", secret)

        assert secret.hex() not in repr(space)
        assert space.root.hex() not in repr(space)

    def test_what_is_not_plain_data_is_an_error(self) -> None:
        """Nothing is guessed."""
        with pytest.raises(TypeError):
            Namespace({"dtype": np.float32}, "t", secrets.token_bytes(16))  # type: ignore[dict-item]

    @given(
        tokens=st.lists(st.integers(0, 2**17), max_size=5 * BLOCK),
        place=st.integers(0, 5 * BLOCK - 1),
    )
    def test_a_chain_names_all_tokens_before(self, tokens: list[int], place: int) -> None:
        """A change shows in its block and in all after it, and in none before."""
        space = Namespace(FIELDS, "t", b"s" * 16)
        ours = space.chain(np.array(tokens, np.int64))
        changed = np.array(tokens, np.int32)
        if place < len(tokens):
            changed[place] += 1
        theirs = space.chain(changed)

        assert len(ours) == len(theirs) == len(tokens) // BLOCK
        same = [a == b for a, b in zip(ours, theirs, strict=True)]
        assert same == [
            place >= len(tokens) or index < place // BLOCK for index in range(len(ours))
        ]
        assert len({space.root, *ours, *theirs}) == 1 + len(ours) + same.count(False)

    def test_another_process_makes_the_same_keys(self) -> None:
        """Whatever its hash seed is, or nothing would ever be shared."""
        program = (
            "import numpy as np;from flide_cache.keys import Namespace;"
            "n=Namespace({'b':1,'a':[2.5,None]},'t',b's'*16);"
            "print(n.key(2,n.chain(np.arange(130))[-1]).hex())"
        )
        seen = set()
        for seed in ("1", "2"):
            env = {**os.environ, "PYTHONHASHSEED": seed}
            command = [sys.executable, "-c", program]
            seen.add(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
        space = Namespace({"a": [2.5, None], "b": 1}, "t", b"s" * 16)

        assert {space.key(Kind.STATE, space.chain(np.arange(130))[-1]).hex()} == {
            line.decode().strip() for line in seen
        }


@pytest.mark.parametrize(
    "wrong",
    [{"position": -1}, {"position": 1 << 32}, {"seconds": -0.1}, {"seconds": float("nan")}],
)
def test_values_that_cannot_be_are_an_error(wrong: dict[str, Any]) -> None:
    """Before any store sees them."""
    with pytest.raises(ValueError, match="both are finite"):
        value_of(1, **wrong)
    with pytest.raises(ValueError, match="nothing to keep"):
        value_of(0)
    with pytest.raises(ValueError, match="cannot be written to"):
        Want(bytes(32), memoryview(b"constant"))
