import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from flide_engine import weights
from flide_engine.errors import ModelLoadError
from flide_engine.weights import WeightReader

CPU = torch.device("cpu")
MAPS = Path("/proc/self/maps")


def write_shards(directory: Path, shards: dict[str, dict[str, Tensor]]) -> None:
    """Shards and their index, as transformers writes a large model."""
    for file, tensors in shards.items():
        save_file(tensors, directory / file)
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    index = directory / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def read(directory: Path, dtype: torch.dtype = torch.float32) -> WeightReader:
    return WeightReader(directory, device=CPU, dtype=dtype)


@pytest.fixture(params=[16 << 20, 40], ids=["one-block", "many-blocks"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_BLOCK_BYTES", request.param)


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("shape", [(), (7,), (7, 5), (3, 2, 5), (1, 33), (0, 4)], ids=str)
def test_a_weight_is_read_as_it_was_written(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Of whatever shape and in however many blocks, the bits are the file's."""
    written = torch.randn(shape)
    save_file({"w": written, "other": torch.ones(3)}, tmp_path / "model.safetensors")
    with read(tmp_path) as reader:
        assert torch.equal(reader.take("w", shape), written)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wanted", [torch.float32, torch.float64], ids=str)
def test_half_precision_is_widened_exactly(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    """Every finite number of a half type comes back as the same number."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(stored)
    numbers = bits[torch.isfinite(bits)]
    save_file({"w": numbers}, tmp_path / "model.safetensors")
    with read(tmp_path, wanted) as reader:
        got = reader.take("w", tuple(numbers.shape))
    assert got.dtype == wanted
    assert torch.equal(got.to(stored).view(torch.int16), numbers.view(torch.int16))


def test_a_call_may_ask_for_another_dtype(tmp_path: Path) -> None:
    """The reader's dtype is only the default."""
    save_file({"w": torch.ones(2, 3)}, tmp_path / "model.safetensors")
    with read(tmp_path, torch.bfloat16) as reader:
        assert reader.take("w", (2, 3)).dtype == torch.bfloat16
        assert reader.take("w", (2, 3), torch.float32).dtype == torch.float32
        assert reader.take_stacked(["w"], [(2, 3)], torch.float64).dtype == torch.float64


def test_a_weight_owns_its_memory(tmp_path: Path) -> None:
    """Writing to a weight changes neither the file nor what is read next."""
    save_file({"w": torch.ones(4)}, tmp_path / "model.safetensors")
    with read(tmp_path) as reader:
        reader.take("w", (4,)).zero_()
        assert torch.equal(reader.take("w", (4,)), torch.ones(4))


@pytest.mark.skipif(not MAPS.exists(), reason="mappings are listed on Linux only")
def test_no_file_stays_mapped(tmp_path: Path) -> None:
    """Pages of a mapped file count as the process's memory: it holds every weight once."""
    save_file({"w": torch.ones(1 << 20)}, tmp_path / "model.safetensors")
    with read(tmp_path) as reader:
        kept = reader.take("w", (1 << 20,))
        assert str(tmp_path) not in MAPS.read_text()
    assert kept.sum() == 1 << 20


@pytest.mark.usefixtures("block_bytes")
def test_stacked_weights_equal_their_concatenation(tmp_path: Path) -> None:
    """Weights of different heights from different shards lie under each other, in order."""
    q, k, v = torch.randn(6, 5), torch.randn(2, 5), torch.randn(3, 5)
    write_shards(tmp_path, {"a.safetensors": {"q": q, "v": v}, "b.safetensors": {"k": k}})
    with read(tmp_path) as reader:
        stacked = reader.take_stacked(["q", "k", "v"], [(6, 5), (2, 5), (3, 5)])
    assert torch.equal(stacked, torch.cat([q, k, v]))


def test_names_are_those_of_all_shards(tmp_path: Path) -> None:
    """What a model looks up to learn its variant is the union of the files."""
    write_shards(
        tmp_path, {"a.safetensors": {"x": torch.ones(1)}, "b.safetensors": {"y": torch.ones(1)}}
    )
    reader = read(tmp_path)
    assert set(reader.names) == {"x", "y"}
    assert "y" in reader
    assert "z" not in reader


def test_files_without_an_index_are_read_too(tmp_path: Path) -> None:
    """A model saved under another file name still loads."""
    save_file({"w": torch.ones(2)}, tmp_path / "weights.safetensors")
    assert torch.equal(read(tmp_path).take("w", (2,)), torch.ones(2))


@pytest.mark.usefixtures("block_bytes")
def test_progress_counts_bytes_up_to_all_of_them(tmp_path: Path) -> None:
    """A bar never goes back, never runs over, and is full at the end, also if weights were left."""
    tensors = {"w": torch.ones(8, 8), "h": torch.ones(4).half(), "left": torch.ones(2)}
    save_file(tensors, tmp_path / "model.safetensors")
    seen: list[tuple[int, int]] = []
    with WeightReader(
        tmp_path,
        device=CPU,
        dtype=torch.float32,
        progress=lambda done, total: seen.append((done, total)),
    ) as reader:
        reader.take("w", (8, 8))
        assert seen[-1] == (256, 272)
        reader.take("h", (4,))
        reader.take("w", (8, 8))
    assert seen == sorted(seen)
    assert seen[-1] == (272, 272)


def test_progress_does_not_finish_after_an_error(tmp_path: Path) -> None:
    """A load that failed does not look like one that is complete."""
    save_file({"w": torch.ones(8)}, tmp_path / "model.safetensors")
    seen: list[int] = []
    with (
        pytest.raises(ModelLoadError),
        WeightReader(
            tmp_path,
            device=CPU,
            dtype=torch.float32,
            progress=lambda done, total: seen.append(done),
        ) as reader,
    ):
        reader.take("missing", (8,))
    assert seen == []


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("row", [0, 6])
def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path, value: float, row: int) -> None:
    """One bad number anywhere is enough, and the message says in which tensor."""
    bad = torch.ones(7, 5)
    bad[row, 4] = value
    save_file({"good": torch.ones(7, 5), "bad": bad}, tmp_path / "model.safetensors")
    reader = read(tmp_path)
    with pytest.raises(ModelLoadError, match=r"model\.safetensors: bad holds NaN or infinity"):
        reader.take_stacked(["good", "bad"], [(7, 5), (7, 5)])


def test_a_weight_that_overflows_the_wanted_dtype_is_refused(tmp_path: Path) -> None:
    """What is finite in the file must be finite in the engine."""
    save_file({"w": torch.tensor([1e6])}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"infinity as torch\.float16.*wider dtype"):
        read(tmp_path, torch.float16).take("w", (1,))


def test_a_weight_of_another_shape_is_refused(tmp_path: Path) -> None:
    """Nothing is broadcast or cut, and no memory is asked for first."""
    save_file({"w": torch.ones(1, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"w has shape \(1, 4\) where .* asks for \(3, 4\)"):
        read(tmp_path).take("w", (3, 4))
    with pytest.raises(ModelLoadError, match="do not belong together"):
        read(tmp_path).take("w", (1 << 50, 4))


def test_a_missing_weight_is_refused(tmp_path: Path) -> None:
    """The message names the weight."""
    save_file({"w": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"no weight lm_head\.weight"):
        read(tmp_path).take("lm_head.weight", (1,))


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_a_quantised_weight_is_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    """Numbers that mean something only with their scales are not read as weights."""
    save_file({"w": torch.ones(4).to(dtype)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelLoadError, match=r"w is stored as .*not quantised"):
        read(tmp_path).take("w", (4,))


@pytest.mark.parametrize("kept", [0, 5, 40, -4], ids=["empty", "length", "header", "tail"])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    """A download cut off anywhere is noticed before any weight is read."""
    path = tmp_path / "model.safetensors"
    save_file({"w": torch.ones(64)}, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors: it cannot be read"):
        read(tmp_path)


def test_a_file_that_is_no_safetensors_is_refused(tmp_path: Path) -> None:
    """Such as the pointer file that git leaves without its large-file extension."""
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelLoadError, match="download it again"):
        read(tmp_path)


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    """The message names the file and not its hundred tensors."""
    write_shards(
        tmp_path, {"a.safetensors": {"x": torch.ones(1)}, "b.safetensors": {"y": torch.ones(1)}}
    )
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"1 of the 2 weight files .* \(b\.safetensors\)"):
        read(tmp_path)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"x": 1}}']
)
def test_a_broken_index_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever JSON it is, if it is any."""
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelLoadError, match="weight_map"):
        read(tmp_path)


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    """Two copies of a model in one directory are not mixed."""
    save_file({"w": torch.ones(1)}, tmp_path / "a.safetensors")
    save_file({"w": torch.zeros(1)}, tmp_path / "b.safetensors")
    with pytest.raises(ModelLoadError, match=r"w is in both a\.safetensors and b\.safetensors"):
        read(tmp_path)


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    """An empty directory, or one that is not there."""
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ModelLoadError, match="there are no weights"):
            read(directory)


def test_weights_that_can_run_code_are_refused(tmp_path: Path) -> None:
    """Only *.bin: the message says how to get safetensors."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="save_pretrained"):
        read(tmp_path)
