"""A checkpoint of a real shape with random weights: how fast it is depends on shapes alone."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from benchmarks.shapes import SIZES
from tests.support.vocabularies import qwen_tokenizer


def write_checkpoint(size: str, target: Path) -> None:
    """Write the model and Qwen3.5's tokenizer to a directory, unless it is there.

    The weights are made on the GPU, where there is one: a CPU takes minutes for 4B.
    """
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=target.parent) as scratch:
        draft = Path(scratch) / "model"
        _model(size, "cuda" if torch.cuda.is_available() else "cpu").save_pretrained(draft)
        qwen_tokenizer().save_pretrained(draft)
        draft.rename(target)


def _model(size: str, device: str) -> Qwen3_5ForCausalLM:
    config = Qwen3_5TextConfig(**SIZES[size], dtype=torch.bfloat16)
    with torch.device("meta"):
        model = Qwen3_5ForCausalLM(config).to(torch.bfloat16)
    model.to_empty(device=device)
    model.tie_weights()
    random = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            _fill(name, weight, random)
    return model


def _fill(name: str, weight: torch.Tensor, random: torch.Generator) -> None:
    """Numbers of the sizes that a trained model has, so that no gate is shut and answers differ."""
    if name.endswith("A_log"):
        weight.uniform_(-0.7, 2.1, generator=random)
    elif name.endswith("dt_bias"):
        weight.uniform_(-4, -1, generator=random)
    elif name.endswith("linear_attn.norm.weight"):
        weight.fill_(1)
    elif weight.dim() == 1:
        weight.zero_()
    else:
        weight.normal_(0, 0.02, generator=random)


def main() -> None:
    """Write one from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race.checkpoint")
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    write_checkpoint(args.size, args.target)


if __name__ == "__main__":
    main()
