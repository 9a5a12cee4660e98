"""The forking engine: one pass reads a state and answers every question as if asked alone."""

from flide_engine.core import Branch, Outcome, Request, Reuse
from flide_engine.engine import Ask, Engine, Result, Timing, Usage
from flide_engine.errors import (
    DeadlineExceeded,
    EngineError,
    EngineFault,
    InvalidRequest,
    ModelLoadError,
    NonFiniteError,
    RequestTooLarge,
)
from flide_engine.scheduler import Health

__all__ = [
    "Ask",
    "Branch",
    "DeadlineExceeded",
    "Engine",
    "EngineError",
    "EngineFault",
    "Health",
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
