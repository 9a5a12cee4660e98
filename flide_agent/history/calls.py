"""Tool calls, as the providers and frameworks write them down."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from flide_agent._json import describe
from flide_agent.exceptions import InvalidInput
from flide_agent.history.text import canonical, record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Call(NamedTuple):
    """A tool call.

    Attributes:
        id: what its result refers to; "" if it has none.
        name: of the tool.
        args: as canonical JSON: a map, or the text that the model wrote if that is not one.
    """

    id: str
    name: str
    args: str

    @property
    def key(self) -> str:
        """What a result is paired by: where there are no ids, results name the tool."""
        return self.id or self.name


def fields_of(value: object) -> dict[str, Any] | None:
    """A map as it is, an object as the map of its attributes, None for anything else."""
    return value if isinstance(value, dict) else getattr(value, "__dict__", None)


def listed_calls(message: Mapping[str, Any], extra: Mapping[str, Any]) -> list[Call]:
    """The calls that a message lists apart from its content, those that can be read first.

    Args:
        message: its fields.
        extra: its additional keyword arguments.

    Raises:
        InvalidInput: what is listed is not calls.
    """
    listed: list[object] = []
    for key in ("tool_calls", "invalid_tool_calls"):
        if calls := message.get(key):
            if not isinstance(calls, (list, tuple)):
                raise InvalidInput(f"{describe(calls)} was given, but {key} must be a list.")
            listed += calls
    if legacy := message.get("function_call") or extra.get("function_call"):
        listed.append(legacy)
    return [read_call(call) for call in listed]


def all_calls(listed: Sequence[Call], in_content: Iterable[Call]) -> list[Call]:
    """Join the two places of calls, writing none twice.

    Providers that put calls into the content have them in both. A call that is in the content only
    is kept: whoever judges a message must see it. Calls that cannot be read come last, because
    LangChain lists them after the others.
    """
    ids = {call.id for call in listed}
    calls = [*listed, *(call for call in in_content if not _repeats(call, listed, ids))]
    return sorted(calls, key=lambda call: call.args.startswith('"'))


def written_calls(calls: Iterable[Call]) -> str:
    """The JSON of calls. Their ids are left out: the place of a call is its name."""
    written = [record({"name": canonical(call.name, "name"), "args": call.args}) for call in calls]
    return "[" + ",".join(written) + "]"


def read_call(source: object) -> Call:
    """Read one call in any of the forms in use.

    Raises:
        InvalidInput: it is not a map, or its tool's name is not text.
    """
    outer = fields_of(source)
    if outer is None:
        raise InvalidInput(f"{describe(source)} was given as a tool call, but it must be a map.")
    inner = outer.get("function") or outer.get("custom") or outer.get("toolUse")
    call = outer if (body := fields_of(inner)) is None else {**outer, **body}
    name = call.get("name") or ""
    if not isinstance(name, str):
        raise InvalidInput(f"{describe(name)} was given as a tool's name, but it must be text.")
    # OpenAI's responses have an id of the item too, so the one of the call comes first.
    key = call.get("call_id") or call.get("toolUseId") or call.get("id") or ""
    args = next((call[key] for key in ("args", "arguments", "input") if key in call), None)
    return Call(str(key), name, _args(args))


def _args(args: object) -> str:
    """Write arguments. Models also write text that is not the JSON of a map, which is kept."""
    if args is None or args == "":
        return "{}"
    if isinstance(args, str):
        try:
            # As lenient as those who run the call: a line break inside a string is read.
            parsed = json.loads(args, strict=False)
            if isinstance(parsed, dict):
                return canonical(parsed, "args")
        except (ValueError, RecursionError):
            pass
    return canonical(args, "args")


def _repeats(call: Call, listed: Sequence[Call], ids: set[str]) -> bool:
    if call.id:
        return call.id in ids
    return any((call.name, call.args) == (other.name, other.args) for other in listed)
