"""What is needed for what: memory alone needs no Redis client, and nothing here needs torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flide_cache


def run(program: str) -> str:
    """What a fresh Python says."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_memory_needs_neither_redis_nor_torch() -> None:
    """Nor msgpack, nor pydantic."""
    names = "redis", "hiredis", "msgpack", "torch", "transformers", "pydantic", "pytest"
    loaded = run(f"import sys, flide_cache; print([n for n in {names!r} if n in sys.modules])")

    assert loaded == "[]"


@pytest.mark.parametrize(
    ("module", "missing"),
    [
        ("flide_cache", "xxhash"),
        ("flide_cache.link", "redis"),
        ("flide_cache.link", "hiredis"),
        ("flide_cache.redis", "msgpack"),
        ("flide_cache.records", "msgpack"),
    ],
)
def test_what_is_missing_is_named(module: str, missing: str) -> None:
    """With the command that installs it."""
    said = run(
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"try: import {module}\n"
        "except ImportError as error: print(error)"
    )

    assert missing in said
    assert "pip install 'flide-agent[redis]'" in said


def test_the_door_is_complete() -> None:
    """Everything that is exported is there, in order."""
    assert flide_cache.__all__ == sorted(flide_cache.__all__)
    assert all(hasattr(flide_cache, name) for name in flide_cache.__all__)
