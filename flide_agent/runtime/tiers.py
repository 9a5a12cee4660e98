"""The tiers below an engine's device, opened from plain settings."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

from flide_agent.exceptions import InvalidInput, MissingExtra
from flide_engine.lower import Tiers

if TYPE_CHECKING:
    from collections.abc import Callable

    from flide_cache import CheckpointStore
    from flide_cache.records import Records

SECRET_BYTES = 16

# What a first restore is decided by; both rates are measured from then on.
_TOKENS_PER_SECOND = {"cpu": 1_000.0, "cuda": 200_000.0}


class OpenTiers:
    """A store and what it is made of; a context manager, for it must be closed after the engine.

    Attributes:
        tiers: for `Engine.from_pretrained`.
        records: for `SessionMemory`.
    """

    def __init__(self, tiers: Tiers, records: Records, close: Callable[[], None]) -> None:
        self.tiers = tiers
        self.records = records
        self.close = close

    def __enter__(self) -> Tiers:
        return self.tiers

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_tiers(
    *,
    host_bytes: int = 0,
    tenant_bytes: int | None = None,
    redis_url: str | None = None,
    secret: bytes | None = None,
    ttl_seconds: int = 3_600,
    device: str = "cpu",
) -> OpenTiers | None:
    """Open the tiers below the device.

    Args:
        host_bytes: of this machine's memory; 0 for none. On a CPU the engine's pool is that tier.
        tenant_bytes: what one tenant may use of it; None for no limit.
        redis_url: a server, as redis:// or rediss://, with a user and a password if it needs them;
            None for none. One that is down now is a warning.
        secret: shared by all replicas that share the server, and by nobody else.
        ttl_seconds: how long a checkpoint lives in Redis after its last use.
        device: what the engine runs on.

    Returns:
        None where no tier is wanted.

    Raises:
        InvalidInput: Redis without a secret, or an address that is none.
        MissingExtra: a package is not installed.
    """
    if not host_bytes and redis_url is None:
        return None
    if redis_url is not None and secret is None:
        raise InvalidInput(
            "a Redis server was given without a secret, which keeps strangers from its "
            "checkpoints: set FLIDE_SECRET to at least 16 bytes, the same for all replicas."
        )
    if secret is not None and len(secret) < SECRET_BYTES:
        raise InvalidInput(
            f"the secret has {len(secret)} bytes, but needs {SECRET_BYTES}: take one from "
            "python -c 'import secrets; print(secrets.token_hex(32))'."
        )
    secret = secret or secrets.token_bytes(32)
    with ExitStack() as opening:
        try:
            store, records = _open(
                opening, host_bytes, tenant_bytes, redis_url, secret, ttl_seconds
            )
        except ImportError as error:
            raise MissingExtra(str(error)) from error
        except ValueError as error:
            raise InvalidInput(f"the Redis address cannot be used: {error}") from error
        close = opening.pop_all().close
    from flide_cache import RestoreModel

    model = RestoreModel(_TOKENS_PER_SECOND["cuda" if device.startswith("cuda") else "cpu"])
    return OpenTiers(Tiers(store, model, secret), records, close)


def _open(
    opening: ExitStack,
    host_bytes: int,
    tenant_bytes: int | None,
    redis_url: str | None,
    secret: bytes,
    ttl_seconds: int,
) -> tuple[CheckpointStore, Records]:
    from flide_cache import HostStore, Tier, TieredStore
    from flide_cache.records import Records

    tiers = []
    link = None
    if host_bytes:
        tiers.append(Tier(HostStore(host_bytes, tenant_bytes=tenant_bytes)))
    if redis_url is not None:
        from flide_cache.link import RedisLink
        from flide_cache.redis import RedisStore

        link = opening.enter_context(RedisLink(redis_url))
        tiers.append(Tier(RedisStore(link, ttl_seconds=ttl_seconds)))
    return opening.enter_context(TieredStore(tiers)), Records(secret, link=link)
