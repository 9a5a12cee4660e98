"""Safetensors read straight into the engine's tensors, so that memory holds every weight once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, KeysView, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from flide_engine.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path
    from types import EllipsisType, TracebackType

Progress = Callable[[int, int], None]
"""Told how many bytes are done and how many there are."""

_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

# Mapped file pages count as ours until the file is closed, so it is closed after every block.
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where a tensor lies, and as what."""

    path: Path
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _BYTES.get(self.dtype, 0)

    def blocks(self) -> Iterator[slice | EllipsisType]:
        """Index after index that together cover the tensor, each a block of whole rows."""
        if not self.shape:
            yield ...
            return
        rows = self.shape[0]
        step = max(1, _BLOCK_BYTES * rows // max(1, self.nbytes))
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows))


class WeightReader:
    """Takes weights out of a model directory, one at a time, checked and converted.

    Reads `model.safetensors`, or the shards that `model.safetensors.index.json` names, or else
    every `*.safetensors` file. No file stays open or mapped between two calls.

        with WeightReader(directory, device=device, dtype=torch.float32) as reader:
            norm = reader.take("model.norm.weight", (576,))

    Attributes:
        device: where the tensors go.
        dtype: what they are converted to, unless a call says otherwise.

    Args:
        directory: the model's directory.
        device, dtype: see the attributes.
        progress: called after every block, out of the bytes of all tensors in the files, and once
            more when the `with` block ends well: what nobody asked for is done too.

    Raises:
        ModelLoadError: there are no safetensors, a shard is missing, or a file is damaged.
    """

    def __init__(
        self,
        directory: Path,
        *,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress | None = None,
    ) -> None:
        self._directory = directory
        self.device = device
        self.dtype = dtype
        self._progress = progress
        self._stored = _index(_weight_files(directory))
        self._done = 0
        self._total = sum(stored.nbytes for stored in self._stored.values())

    def __enter__(self) -> WeightReader:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is None:
            self._advance(self._total - self._done)

    def __contains__(self, name: str) -> bool:
        return name in self._stored

    @property
    def names(self) -> KeysView[str]:
        """The names of all tensors in the files."""
        return self._stored.keys()

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """One weight, in memory of its own.

        Returns:
            `shape`, in `dtype` (by default the reader's) on the reader's device.

        Raises:
            ModelLoadError: there is no such weight, it has another shape, it is quantised, or it
                holds NaN or infinity once converted.
        """
        stored = self._find(name, shape)
        out = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        self._fill(out, name, stored)
        return out

    def take_stacked(
        self,
        names: Sequence[str],
        shapes: Sequence[tuple[int, ...]],
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Several weights under each other, as one merged projection wants them.

        Each is read into its rows of the result: no second copy is ever made.

        Args:
            names: the weights, from the top.
            shapes: their shapes `[rows_i, ...]`, equal but for the first dimension.
            dtype: by default the reader's.

        Returns:
            `[sum of rows_i, ...]`, equal to `torch.cat` of the weights.

        Raises:
            ModelLoadError: as `take`.
        """
        found = [self._find(name, shape) for name, shape in zip(names, shapes, strict=True)]
        assert len({shape[1:] for shape in shapes}) == 1, f"only rows may differ: {shapes}"
        rows = [shape[0] for shape in shapes]
        out = torch.empty(
            (sum(rows), *shapes[0][1:]), dtype=dtype or self.dtype, device=self.device
        )
        for part, name, stored in zip(out.split_with_sizes(rows), names, found, strict=True):
            self._fill(part, name, stored)
        return out

    def _fill(self, out: Tensor, name: str, stored: _Stored) -> None:
        for block in stored.blocks():
            with _opened(stored.path) as file:
                out[block].copy_(file.get_slice(name)[block])
            if not torch.isfinite(out[block]).all():
                raise ModelLoadError(
                    f"{stored.path}: {name} holds NaN or infinity as {out.dtype}, and no answer "
                    "can come of that: load it in a wider dtype or download the model again"
                )
            self._advance(out[block].numel() * _BYTES[stored.dtype])

    def _find(self, name: str, shape: tuple[int, ...]) -> _Stored:
        stored = self._stored.get(name)
        if stored is None:
            raise ModelLoadError(
                f"{self._directory}: there is no weight {name} among the {len(self._stored)} in "
                "the files: weights and config.json do not belong together, download them again"
            )
        if stored.dtype not in _BYTES:
            raise ModelLoadError(
                f"{stored.path}: {name} is stored as {stored.dtype}, and only {', '.join(_BYTES)} "
                "can be read: use the model's checkpoint that is not quantised"
            )
        if stored.shape != shape:
            raise ModelLoadError(
                f"{stored.path}: {name} has shape {stored.shape} where config.json asks for "
                f"{shape}: weights and config.json do not belong together, download them again"
            )
        return stored

    def _advance(self, nbytes: int) -> None:
        # A tied weight may be taken twice: a bar must not run past its end.
        self._done = min(self._done + nbytes, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)


def _weight_files(directory: Path) -> list[Path]:
    single = directory / "model.safetensors"
    index = directory / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        return _shards(index)
    files = sorted(directory.glob("*.safetensors"))
    if files:
        return files
    if any(directory.glob("*.bin")):
        raise ModelLoadError(
            f"{directory}: the weights are *.bin files, which can run code when they are read, so "
            "only *.safetensors are: save the model again with save_pretrained of transformers"
        )
    raise ModelLoadError(
        f"{directory}: there are no weights, and a model needs model.safetensors or shards with "
        "their index: download the model again"
    )


def _shards(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
        files = [index.parent / name for name in sorted(names)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            f"{index}: it should be JSON with a weight_map from weights to files: download it again"
        ) from error
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        raise ModelLoadError(
            f"{index.parent}: {len(missing)} of the {len(files)} weight files in {index.name} are "
            f"missing ({', '.join(missing)}): download the model again"
        )
    return files


def _index(files: list[Path]) -> dict[str, _Stored]:
    found: dict[str, _Stored] = {}
    for path in files:
        with _opened(path) as file:
            for name in file.keys():  # noqa: SIM118 (a handle, not a dict)
                if name in found:
                    raise ModelLoadError(
                        f"{path.parent}: {name} is in both {found[name].path.name} and "
                        f"{path.name}, and only one can be meant: remove the file that is not used"
                    )
                view = file.get_slice(name)
                found[name] = _Stored(path, tuple(view.get_shape()), view.get_dtype())
    return found


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(
            f"{path}: it cannot be read as safetensors ({error}): download it again"
        ) from error
