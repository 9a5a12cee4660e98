"""The serving side of sessions: their trees of heads, and the engine behind them."""

from flide_agent.runtime.responses import to_response
from flide_agent.runtime.runtime import Runtime

__all__ = ["Runtime", "to_response"]
