"""The float64 truth: transformers' own modelling code with its float32 casts mapped to float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PreTrainedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from flide_engine.core import Tokens


class Float32AsFloat64(TorchFunctionMode):
    """Every request for float32 becomes one for float64, in methods and in arguments.

    Without it `model.double()` still computes norms, rotary angles and the recurrence in float32.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.float:
            return torch.Tensor.double(*args)
        return func(
            *[torch.float64 if a is torch.float32 else a for a in args],
            **{k: torch.float64 if v is torch.float32 else v for k, v in (kwargs or {}).items()},
        )


class Truth:
    """A checkpoint in float64 all through, one prompt at a time."""

    def __init__(self, directory: Path) -> None:
        with Float32AsFloat64():
            self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                directory, dtype=torch.float64
            )
        # The angles' frequencies are a float32 buffer of the constructor; here they are exact.
        for module in self.model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq = _frequencies(module)

    @torch.inference_mode()
    def logprobs(self, ids: Tokens) -> torch.Tensor:
        """`[vocabulary]` log-probabilities after the last token."""
        with Float32AsFloat64():
            out = self.model(torch.from_numpy(ids)[None], logits_to_keep=1, use_cache=False)
        assert out.logits.dtype == torch.float64
        return _logprobs(out)


def _frequencies(module: Any) -> torch.Tensor:
    with Float32AsFloat64():
        made = type(module)(module.config)
    assert made.inv_freq.dtype == torch.float64
    frequencies: torch.Tensor = made.inv_freq
    return frequencies


@torch.inference_mode()
def transformers_logprobs(model: PreTrainedModel, ids: Tokens) -> torch.Tensor:
    """`[vocabulary]` log-probabilities after the last token, in the dtype of the model."""
    out = model(torch.from_numpy(ids)[None], logits_to_keep=1, use_cache=False)
    return _logprobs(out)


def _logprobs(out: Any) -> torch.Tensor:
    logits: torch.Tensor = out.logits[0, -1]
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
