"""What this package raises on purpose, as one tree.

    FlideError
    ├── InvalidInput   the caller's input breaks a rule (also a ValueError)
    └── MissingExtra   a part that is installed on request is not there (also an ImportError)

Catch `FlideError` to catch them all. Every message is one sentence meant for people.
"""


class FlideError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidInput(FlideError, ValueError):
    """The input breaks a rule; the message says where, what was given, the rule and the way out."""


class MissingExtra(FlideError, ImportError):
    """An optional part is not installed; the message holds the command that installs it."""
