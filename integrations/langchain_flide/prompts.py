"""The system prompt and the tools of an agent, which only calls of its model show."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool

from langchain_flide.sessions import MAX_KNOWN
from langchain_flide.states import plain

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest

    from langchain_flide.sessions import Place

CHANGES = 3
"""Calls of a model in a row whose prompts all differ before that is warned of."""

_log = logging.getLogger(__name__)


class Prompts:
    """How the histories of agents begin.

    Args:
        system: the system prompt, if it is known; then calls of the model are not looked at.
    """

    def __init__(self, system: str | None) -> None:
        self._given = None if system is None else [{"role": "system", "content": system}]
        self._lock = threading.Lock()
        self._seen: OrderedDict[Place, list[dict[str, Any]]] = OrderedDict()
        self._changes = 0

    def see(self, place: Place, request: ModelRequest[Any]) -> list[dict[str, Any]]:
        """The beginning of the history that a model is called with, remembered for its session."""
        if self._given is not None:
            return self._given
        opening = _opening(request)
        if place.session is not None:
            self._remember(place, opening)
        return opening

    def opening(self, place: Place) -> list[dict[str, Any]]:
        """The beginning of a history, as last seen."""
        if self._given is not None:
            return self._given
        with self._lock:
            return self._seen.get(place, [])

    def _remember(self, place: Place, opening: list[dict[str, Any]]) -> None:
        with self._lock:
            changed = self._seen.get(place, opening) != opening
            self._changes = self._changes + 1 if changed else 0
            self._seen[place] = opening
            self._seen.move_to_end(place)
            while len(self._seen) > MAX_KNOWN:
                self._seen.popitem(last=False)
        if self._changes == CHANGES:
            _log.warning(
                "The system prompt or the tools of %r were different in each of its last %d calls, "
                "so its whole history is read again every time. Take what changes, such as a "
                "clock, out of the prompt, or give the guard a fixed system=.",
                place.agent or "the agent",
                CHANGES + 1,
            )


def _opening(request: ModelRequest[Any]) -> list[dict[str, Any]]:
    """One system message: the prompt, and what the tools are for."""
    blocks: list[Any] = []
    if request.system_message is not None:
        content = request.system_message.content
        blocks += [content] if isinstance(content, str) else content
    if request.tools:
        blocks.append({"type": "tools", "tools": [_tool(tool) for tool in request.tools]})
    return [{"role": "system", "content": blocks}] if blocks else []


def _tool(tool: Any) -> Any:
    if isinstance(tool, BaseTool):
        return {"name": tool.name, "description": tool.description}
    described = tool.get("function", tool)
    if isinstance(described, Mapping) and "name" in described:
        return {key: described[key] for key in ("name", "description") if key in described}
    return plain(tool)
