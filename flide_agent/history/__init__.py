"""A history as canonical text, named by a chain of digests.

A history is a list of *turns*, each with one text; the history's text is their concatenation.

- A string is a turn by itself, verbatim.
- A message is one line of compact JSON. What means the same is written the same way, whoever wrote
  it down and however: ids, usage and other metadata never show.
- Any other JSON value is its JSON on one line, as a state is written.

Every line ends its turn and no value can break it, so no content can pass for another message.
"""

from flide_agent.history.chain import ROOT, digest, extend
from flide_agent.history.diff import Comparison, compare
from flide_agent.history.messages import Turn, messages_to_history, state_text, system_turn
from flide_agent.history.text import CANONICAL_VERSION

__all__ = [
    "CANONICAL_VERSION",
    "ROOT",
    "Comparison",
    "Turn",
    "compare",
    "digest",
    "extend",
    "messages_to_history",
    "state_text",
    "system_turn",
]
