"""What can go wrong, as one tree.

EngineError
├── InvalidRequest      the caller's input breaks a rule (also a ValueError)
│   └── RequestTooLarge it can never fit the context or the pool
├── ModelLoadError      a model, tokenizer or template that cannot be used
├── NonFiniteError      a pass produced NaN or infinity; nothing of it is kept
├── DeadlineExceeded    the time to answer was over before the request's turn came
└── EngineFault         the engine broke or was closed; it answers nothing any more
"""


class EngineError(Exception):
    """Base of everything the engine raises on purpose; the message is one sentence for people."""


class InvalidRequest(EngineError, ValueError):
    """The request breaks a rule; the message names the value, the rule and the way out."""


class RequestTooLarge(InvalidRequest):
    """The request can never be answered here: longer than the context, or than the whole pool."""


class ModelLoadError(EngineError):
    """The model directory, its weights, its tokenizer or its chat template cannot be used."""


class NonFiniteError(EngineError):
    """The model's output held NaN or infinity, so there is no answer to give."""


class DeadlineExceeded(EngineError):
    """The request's deadline passed while it waited, so nothing was computed for it."""


class EngineFault(EngineError):
    """The engine answers nothing any more: its device or itself broke, or it was closed."""
