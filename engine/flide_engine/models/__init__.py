"""One file a family, one body for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flide_engine.errors import ModelLoadError
from flide_engine.models.decoder import Decoder
from flide_engine.models.llama import load_llama
from flide_engine.models.qwen3_5 import load_qwen3_5

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flide_engine.weights import WeightReader

__all__ = ["FAMILIES", "Decoder", "load_model"]

FAMILIES: dict[str, Callable[[Mapping[str, Any], WeightReader], Decoder]] = {
    "llama": load_llama,
    "qwen3_5": load_qwen3_5,
    "qwen3_5_text": load_qwen3_5,
}
"""`model_type` of config.json to its loader."""


def load_model(config: Mapping[str, Any], weights: WeightReader) -> Decoder:
    """Build the model a `config.json` describes.

    Raises:
        ModelLoadError: when its family is not supported, or its weights do not fit.
    """
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ModelLoadError(
            f"model_type {kind!r} is not supported; supported families are "
            f"{', '.join(sorted(FAMILIES))}."
        )
    return FAMILIES[kind](config, weights)
