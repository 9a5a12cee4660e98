"""Bodies: read under a bound in the event loop; unpacked and parsed elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flide_agent._json import describe, load_json
from flide_agent.exceptions import InvalidInput
from flide_agent.server.errors import ApiError, fault
from flide_agent.server.unpack import ENCODINGS, Damaged, TooLong, unpack

if TYPE_CHECKING:
    from starlette.requests import Request

    from flide_agent.server.settings import Limits


class Packed(NamedTuple):
    """A body as it came.

    Attributes:
        data: the bytes.
        encoding: how they are packed; "" if they are not.
        limit: bytes that they may unpack to.
    """

    data: bytes
    encoding: str
    limit: int

    def parse(self) -> dict[str, Any]:
        """The map that it holds. Takes time when it is large, so not in the event loop.

        Raises:
            ApiError: it is too large, cannot be unpacked, or is not a JSON map.
        """
        data = self._unpacked()
        try:
            content = load_json(data, "the body")
        except InvalidInput as error:
            raise fault(str(error), kind="json_invalid") from None
        if not isinstance(content, dict):
            raise fault(f"{describe(content)} was given, but the body must be a map.")
        return content

    def _unpacked(self) -> bytes:
        if not self.encoding:
            return self.data
        try:
            return unpack(self.data, self.encoding, self.limit)
        except TooLong:
            raise _too_large(self.limit, "unpacked") from None
        except Damaged as error:
            raise fault(
                f"the body cannot be unpacked as {self.encoding} ({error}): send it whole, or "
                "leave Content-Encoding out.",
                kind="encoding_invalid",
            ) from None


async def read_body(request: Request, limits: Limits) -> Packed:
    """Take in a request's body.

    Raises:
        ApiError: it is too large, or of a kind that is not read here.
        ClientDisconnect: the client went away.
    """
    limit = limits.body_bytes
    encoding = _encoding(request)
    _check_kind(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit, "sent")
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > limit:
            raise _too_large(limit, "sent")
    return Packed(bytes(data), encoding, limit)


def _encoding(request: Request) -> str:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return ""
    if encoding in ENCODINGS:
        return encoding
    raise ApiError(
        415,
        "unsupported_media_type",
        f"bodies packed as {describe(encoding)} are not read: use {' or '.join(ENCODINGS)}, or "
        "leave Content-Encoding out.",
        headers={"accept-encoding": ", ".join(ENCODINGS)},
    )


def _check_kind(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.startswith(("multipart/", "image/", "audio/", "video/")):
        raise ApiError(
            415,
            "unsupported_media_type",
            f"{describe(kind)} was sent, but images are not read by this engine: send "
            "application/json, and describe them in the state instead.",
        )


def _too_large(limit: int, how: str) -> ApiError:
    return ApiError(
        413,
        "request_too_large",
        f"the body has more than {limit:,} bytes as {how}, which is the most that is read: send "
        "less, or only what is new, through a session.",
    )
