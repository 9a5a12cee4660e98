"""The forking engine: one pass reads a state and answers every question as if asked alone."""

from flide_engine.core import Branch, Outcome, Request, Reuse
from flide_engine.engine import Ask, Engine, Result, Timing, Usage
from flide_engine.errors import (
    EngineError,
    InvalidRequest,
    ModelLoadError,
    NonFiniteError,
    RequestTooLarge,
)

__all__ = [
    "Ask",
    "Branch",
    "Engine",
    "EngineError",
    "InvalidRequest",
    "ModelLoadError",
    "NonFiniteError",
    "Outcome",
    "Request",
    "RequestTooLarge",
    "Result",
    "Reuse",
    "Timing",
    "Usage",
]
