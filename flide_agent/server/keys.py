"""API keys: who a caller is, and what it may do."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from flide_agent._json import load_json, where
from flide_agent.exceptions import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flide_agent.server.settings import Limits

_log = logging.getLogger(__name__)

_FRESH_SECONDS = 1.0
"""How long a keys file is not looked at again."""


class Caller(NamedTuple):
    """Who asks. Its tenant comes from its key, never from its request."""

    tenant: str
    limits: Limits


class KeyEntry(BaseModel):
    """One key of the file.

    Attributes:
        sha256: of the key, in hexadecimal digits; the key itself is nowhere.
        tenant: whose it is; several keys may have one tenant, which makes rotation easy.
        limits: where they differ from the server's.
    """

    model_config = ConfigDict(extra="forbid")

    sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]
    tenant: Annotated[str, Field(min_length=1, max_length=256)]
    limits: dict[str, Any] = {}

    @field_validator("sha256")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()


class _KeysFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: Annotated[list[KeyEntry], Field(min_length=1)]


def digest(key: bytes) -> str:
    """What the file holds of a key. A key is long and random, so a slow hash would add nothing."""
    return hashlib.sha256(key).hexdigest()


class Keys:
    """The keys of a file, read again when it changes.

    A file that cannot be read while the server runs is logged, and the keys known before go on.

    Args:
        path: JSON, or TOML if it ends in .toml: {"keys": [{"sha256": …, "tenant": …}]}.
        limits: of a tenant whose key does not say otherwise.
        clock: seconds that only go forward.

    Raises:
        InvalidInput: it cannot be read, or breaks a rule.
    """

    def __init__(
        self, path: Path, limits: Limits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._limits = limits
        self._clock = clock
        self._stamp = _stamp(path)
        self._looked = clock()
        self._callers = _read(path, limits)

    def find(self, key: bytes) -> Caller | None:
        """Whose key it is. Takes as long whether or not it is one."""
        self._refresh()
        given = digest(key)
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, given):
                found = caller
        return found

    def limits_of(self, tenant: str) -> Limits:
        """What a tenant may do: by the last of its keys."""
        return {c.tenant: c.limits for _, c in self._callers}.get(tenant, self._limits)

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._looked < _FRESH_SECONDS:
            return
        self._looked = now
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._callers = _read(self._path, self._limits)
        except InvalidInput as error:
            _log.error("the keys known before stay in use: %s", error)
        else:
            _log.info("%d keys read from %s", len(self._callers), self._path)


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file does."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read(path: Path, limits: Limits) -> list[tuple[str, Caller]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: it cannot be read ({error.strerror}).") from None
    content: Any
    if path.suffix == ".toml":
        try:
            content = tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} is not valid TOML: {error}.") from None
    else:
        content = load_json(data, str(path))
    try:
        entries = _KeysFile.model_validate(content).keys
        return [
            (entry.sha256, Caller(entry.tenant, _merged(limits, entry.limits))) for entry in entries
        ]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{path}: {where(first['loc'])}: {first['msg']}.") from None


def _merged(limits: Limits, changes: dict[str, Any]) -> Limits:
    return type(limits).model_validate({**limits.model_dump(), **changes})
