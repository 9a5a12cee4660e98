"""The model as transformers runs it: one prompt at a time, with nothing of this engine in it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from flide_engine.errors import ModelLoadError, NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flide_engine.core import Tokens


class PlainModel:
    """A model directory, loaded by transformers; code that comes with it is never run.

    Raises:
        ModelLoadError: transformers cannot load it.
    """

    def __init__(self, directory: Path, dtype: torch.dtype, device: torch.device) -> None:
        try:
            with _quiet():
                self._model: Any = AutoModelForCausalLM.from_pretrained(
                    directory, dtype=dtype, local_files_only=True, trust_remote_code=False
                )
        # What a checkpoint that it cannot read raises is whatever it stumbles over.
        except Exception as error:
            raise ModelLoadError(
                f"{directory}: transformers cannot load the model to compare with "
                f"({type(error).__name__}: {error})."
            ) from error
        self._model.to(device)

    @torch.inference_mode()
    def probabilities(self, prompt: Tokens, labels: Tokens) -> npt.NDArray[np.float64]:
        """What comes after a prompt, over these labels only, from its logits in float64.

        Args:
            prompt: `[L]`.
            labels: `[n]`.

        Raises:
            NonFiniteError: a logit is NaN or infinite.
        """
        ids = torch.from_numpy(prompt)[None].to(self._model.device)
        with _quiet():
            logits = self._model(ids, logits_to_keep=1, use_cache=False).logits[0, -1]
        own: npt.NDArray[np.float64] = logits.double().cpu().numpy()[labels]
        if not np.isfinite(own).all():
            raise NonFiniteError("transformers gave NaN or infinity: there is no answer to check.")
        weights = np.exp(own - own.max())
        probabilities: npt.NDArray[np.float64] = weights / weights.sum()
        return probabilities


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars and the advice that transformers prints."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
