"""What was said, and the ways in which messages write it down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)

if TYPE_CHECKING:
    from random import Random

texts = st.text(st.characters(codec="utf-8") | st.sampled_from('\n\r\x85\u2028"\\{}'))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
args = st.dictionaries(texts, json_values, max_size=3)


@dataclass(frozen=True)
class Picture:
    """An image, by what its base64 data are."""

    data: str


@dataclass(frozen=True)
class Said:
    """What one message says, in a form that has no second way to say it."""

    role: str
    content: tuple[str | Picture, ...]
    name: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    failed: bool = False
    refusal: str = ""


@st.composite
def contents(draw: st.DrawFn, pictures: bool) -> tuple[str | Picture, ...]:
    """Texts that are not empty, with pictures between them."""
    if not pictures:
        return tuple(filter(None, [draw(texts)]))
    drawn = draw(st.lists(texts.filter(bool) | st.builds(Picture, st.text("ab+/", min_size=1))))
    content: list[str | Picture] = []
    for part in drawn:
        if content and isinstance(part, str) and isinstance(content[-1], str):
            content[-1] += part
        else:
            content.append(part)
    return tuple(content)


@st.composite
def sayings(draw: st.DrawFn, roles: tuple[str, ...] = ("system", "user", "assistant")) -> Said:
    """Anything that a message may say."""
    role = draw(st.sampled_from(roles))
    content = draw(contents(pictures=role == "user"))
    if role == "assistant":
        called = st.tuples(texts, args.map(lambda value: json.dumps(value, sort_keys=True)))
        calls = tuple(draw(st.lists(called, max_size=3)))
        return Said(role, content, calls=calls, refusal=draw(st.just("") | texts))
    if role == "tool":
        return Said(role, content, failed=draw(st.booleans()))
    return Said(role, content, name=draw(st.just("") | texts))


def blocks(said: Said, random: Random) -> list[str | dict[str, Any]]:
    """The content as blocks: texts cut anywhere, pictures in any provider's form."""
    written: list[str | dict[str, Any]] = []
    for part in said.content:
        if isinstance(part, Picture):
            written.append(random.choice(_pictures(part)))
            continue
        cut = random.randint(0, len(part))
        for piece in (part[:cut], part[cut:]):
            block = {"type": "text", "text": piece, "index": 0}
            written.append(block if random.random() < 0.5 else piece)
            if said.role == "assistant":
                written.append({"type": "thinking", "thinking": "hm", "signature": str(uuid4())})
    return written


def as_langchain(said: Said, random: Random, ids: list[str]) -> BaseMessage:
    """A LangChain message. Call ids are taken from a list, everything else about it is random."""
    plain = "".join(part for part in said.content if isinstance(part, str))
    has_picture = any(isinstance(part, Picture) for part in said.content)
    content: Any = blocks(said, random) if has_picture or random.random() < 0.5 else plain
    kwargs: dict[str, Any] = {"id": str(uuid4()), "response_metadata": {"token": random.random()}}
    if said.role == "tool":
        status = "error" if said.failed else "success"
        return ToolMessage(content, tool_call_id=ids[0], status=status, artifact=object(), **kwargs)
    if said.role == "user":
        return HumanMessage(content, name=said.name or None, **kwargs)
    if said.role == "system":
        return SystemMessage(content, name=said.name or None, **kwargs)
    calls = [
        {"id": key, "name": name, "args": shuffled(json.loads(written), random)}
        for key, (name, written) in zip(ids, said.calls, strict=True)
    ]
    if isinstance(content, list) and random.random() < 0.5:
        for call in calls:
            content.append({**call, "type": "tool_use", "input": call["args"]})
    kwargs["additional_kwargs"] = {"refusal": said.refusal, "seen": random.random()}
    return AIMessage(content, name=random.choice([None, "agent"]), tool_calls=calls, **kwargs)


def as_openai(said: Said, random: Random, ids: list[str]) -> dict[str, Any]:
    """An OpenAI message."""
    plain = "".join(part for part in said.content if isinstance(part, str))
    has_picture = any(isinstance(part, Picture) for part in said.content)
    message: dict[str, Any] = {
        "role": "developer" if said.role == "system" else said.role,
        "content": blocks(said, random) if has_picture else plain,
    }
    if said.name:
        message["name"] = said.name
    if said.role == "tool":
        message |= {"tool_call_id": ids[0], "status": "error" if said.failed else "ok"}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": key,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(shuffled_of(written, random))},
            }
            for key, (name, written) in zip(ids, said.calls, strict=True)
        ]
        message["content"] = plain or None
    if said.refusal:
        message["refusal"] = said.refusal
    return dict(random.sample(list(message.items()), len(message)))


def as_anything(said: Said, random: Random, ids: list[str]) -> object:
    """A message in one of the forms, the map of a LangChain message among them."""
    if random.random() < 0.4:
        return as_openai(said, random, ids)
    message = as_langchain(said, random, ids)
    return random.choice([message, message_to_dict(message), message.model_dump()])


def shuffled(value: Any, random: Random) -> Any:
    """An equal value with its keys in another order."""
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    if not isinstance(value, dict):
        return value
    keys = random.sample(list(value), len(value))
    return {key: shuffled(value[key], random) for key in keys}


def shuffled_of(written: str, random: Random) -> Any:
    """The value of JSON text, its keys in another order."""
    return shuffled(json.loads(written), random)


def _pictures(picture: Picture) -> list[dict[str, Any]]:
    url = f"data:image/png;base64,{picture.data}"
    source = {"type": "base64", "media_type": "image/png", "data": picture.data}
    return [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "input_image", "image_url": url},
        {"type": "image", "source": source},
        {"type": "image", "base64": picture.data, "mime_type": "image/png", "id": f"lc_{uuid4()}"},
        {"type": "image", "source_type": "base64", "data": picture.data, "mime_type": "image/png"},
    ]
