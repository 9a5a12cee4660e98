"""A message's content: text, and blocks of many kinds."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flide_agent._json import describe
from flide_agent.exceptions import InvalidInput
from flide_agent.history.calls import Call, read_call
from flide_agent.history.chain import digest
from flide_agent.history.text import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT = frozenset({"text", "input_text", "output_text"})
_CALLS = frozenset({"tool_call", "invalid_tool_call", "tool_use", "function_call", "toolUse"})
# What a model thought is not what it said, and a second model does not repeat it.
_THOUGHTS = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "media": "media",
}
# Where media lie, the thing itself before what refers to it. An id comes last: beside any of the
# others it is the block's own.
_REFERENCES = (
    *("data", "base64", "bytes", "file_data"),
    *("url", "image_url", "video_url", "file_url", "file_uri", "uri"),
    *("file_id", "id"),
)
_SHOWN = 16


@dataclass(slots=True)
class Content:
    """What was read.

    Attributes:
        body: a text; or, if there is more than text, a list of texts and maps.
        refusal: what the model said when it refused.
        calls: tool calls that were in the content.
    """

    body: str | list[Any] = ""
    refusal: str = ""
    calls: list[Call] = field(default_factory=list)


def read_content(content: object) -> Content:
    """Read content in any of the forms in use.

    Text reads the same whether it is a string or cut into blocks. Thoughts are left out. Media are
    replaced by their kind and a digest. What is not known is kept as it is.

    Raises:
        InvalidInput: it is neither text nor a list of texts and maps.
    """
    if isinstance(content, str):
        return Content(content)
    if content is None:
        return Content()
    if not isinstance(content, (list, tuple)):
        raise InvalidInput(
            f"{describe(content)} was given as content, but it must be text or a list of blocks; "
            "write it as text."
        )
    read = Content()
    parts: list[str | dict[str, Any]] = []
    for block in content:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            parts += _parts(block, read)
        else:
            raise InvalidInput(
                f"{describe(block)} was given as a block of content, but it must be text or a map."
            )
    read.body = _body(parts)
    return read


def _parts(block: dict[str, Any], read: Content) -> Iterator[str | dict[str, Any]]:
    """What a block adds to the content; its call or refusal is put where it belongs."""
    kind = _kind(block)
    if kind in _TEXT and isinstance(block.get("text"), str):
        yield block["text"]
    elif kind in _CALLS:
        read.calls.append(read_call(block))
    elif kind == "refusal" and isinstance(block.get("refusal"), str):
        read.refusal += block["refusal"]
    elif kind in _MEDIA:
        yield {"type": _MEDIA[kind], "digest": digest(_reference(block))[:_SHOWN]}
    elif kind not in _THOUGHTS:
        yield block


def _kind(block: dict[str, Any]) -> str:
    """The kind of a block: its type or, as some providers write it, its only key."""
    kind = block.get("type") or (next(iter(block)) if len(block) == 1 else "")
    return kind if isinstance(kind, str) else ""


def _reference(block: dict[str, Any]) -> str:
    """What tells media apart: the data, or else the address, wherever the block has it."""
    inner = [value for value in block.values() if isinstance(value, dict)]
    inmost = [value for level in inner for value in level.values() if isinstance(value, dict)]
    levels = (block, *inner, *inmost)
    for value in (level.get(key) for key in _REFERENCES for level in levels):
        if isinstance(value, bytes):
            return b64encode(value).decode()
        if isinstance(value, str) and value:
            return value.partition(",")[2] if value.startswith("data:") else value
    return canonical(block, "content")


def _body(parts: list[str | dict[str, Any]]) -> str | list[Any]:
    """Join texts that follow each other, and leave out empty ones."""
    body: list[Any] = []
    texts: list[str] = []
    for part in (*parts, None):
        if isinstance(part, str):
            texts.append(part)
            continue
        if text := "".join(texts):
            body.append(text)
        texts.clear()
        if part is not None:
            body.append(part)
    if not body:
        return ""
    return body[0] if len(body) == 1 and isinstance(body[0], str) else body
