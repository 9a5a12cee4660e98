"""Flide for LangChain and LangGraph: a decision model, a guard, a tool and nodes that know the
session.

Needs langchain-core; the guard, the nodes and the tool need flide-agent[langchain].
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flide_agent import MissingExtra, __version__
from flide_agent.history import messages_to_history

if TYPE_CHECKING:
    from langchain_flide.middleware import DecisionMiddleware
    from langchain_flide.model import SessionDecisionModel, SessionResponse
    from langchain_flide.nodes import guard_node, route_by
    from langchain_flide.tool import judge_tool

__all__ = [
    "DecisionMiddleware",
    "SessionDecisionModel",
    "SessionResponse",
    "__version__",
    "guard_node",
    "judge_tool",
    "messages_to_history",
    "route_by",
]

# Loaded on first use, so that each name needs only what it is made of.
_MODULES = {
    "DecisionMiddleware": "middleware",
    "SessionDecisionModel": "model",
    "SessionResponse": "model",
    "guard_node": "nodes",
    "judge_tool": "tool",
    "route_by": "nodes",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{name} needs a package that is not installed ({error}): "
            "run pip install 'flide-agent[langchain]'."
        ) from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
