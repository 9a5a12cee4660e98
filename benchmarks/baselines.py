"""The same questions answered by transformers, in the two ways that need no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.timing import Answers
    from flide_engine.core import Request, Tokens


def load(directory: Path) -> Any:
    """A checkpoint as transformers runs it, in float32."""
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


@torch.inference_mode()
def alone(model: Any, request: Request) -> Answers:
    """Every question on its own: its whole prompt, and logits for the last position only."""
    answers = []
    for branch in request.branches:
        prompt = _batch(np.concatenate([request.trunk, branch.token_ids]))
        logits = model(prompt, logits_to_keep=1, use_cache=False).logits
        answers.append(_probabilities(logits, branch.label_ids))
    return answers


@torch.inference_mode()
def cached(model: Any, request: Request) -> Answers:
    """The state once, then every question on its keys and values, one after the other."""
    cache = DynamicCache(config=model.config)

    def extend(ids: Tokens) -> torch.Tensor:
        # By position: the cache's keyword has two names, one for older transformers.
        logits: torch.Tensor = model(_batch(ids), None, None, cache, logits_to_keep=1).logits
        return logits

    extend(request.trunk)
    answers = []
    for branch in request.branches:
        answers.append(_probabilities(extend(branch.token_ids), branch.label_ids))
        # A negative number says how many to remove.
        cache.crop(-len(branch.token_ids))
    return answers


def _batch(ids: Tokens) -> torch.Tensor:
    return torch.from_numpy(ids)[None]


def _probabilities(logits: torch.Tensor, labels: Tokens) -> np.ndarray[Any, np.dtype[np.float64]]:
    chosen = logits[0, -1].double()[torch.from_numpy(labels)]
    probabilities: np.ndarray[Any, np.dtype[np.float64]] = chosen.softmax(-1).numpy()
    return probabilities
