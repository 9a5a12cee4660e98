"""What a model runs on: its pool's memory, sized for the device, and who runs its rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flide_engine.core import GRID
from flide_engine.errors import ModelLoadError
from flide_engine.executors import GraphExecutor, PlainExecutor, ladder
from flide_engine.pool import Pool
from flide_engine.storage import Storage

if TYPE_CHECKING:
    from flide_engine.executors import Executor
    from flide_engine.models import Decoder
    from flide_engine.weights import Progress

CPU_POOL_BYTES = 2 * 1024**3
CUDA_POOL_SHARE = 0.6
"""Of the memory that is free once the weights are loaded; graphs and rounds need the rest."""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Backend:
    """A model's memory on its device, who holds what of it, and what runs a round."""

    storage: Storage
    pool: Pool
    execute: Executor


def choose_device(device: str | None, dtype: str | None) -> tuple[torch.device, torch.dtype]:
    """The device and the dtype of products; the CPU, and there float32, unless told otherwise.

    Raises:
        ModelLoadError: it does not exist here, or cannot compute in that dtype.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ModelLoadError(f"dtype {dtype!r} is unknown; use one of {', '.join(DTYPES)}.")
    if device in (None, "cpu"):
        return torch.device("cpu"), DTYPES[dtype or "float32"]
    if not (device == "cuda" or device.startswith("cuda:")):
        raise ModelLoadError(f"device {device!r} is unknown; use 'cpu' or 'cuda'.")
    if not torch.cuda.is_available():
        raise ModelLoadError(f"device {device!r} is not here: PyTorch sees no GPU; use 'cpu'.")
    if dtype == "float64":
        raise ModelLoadError("float64 is not computed on a GPU; use device 'cpu' or float32.")
    return torch.device(device), DTYPES[dtype or "bfloat16"]


def make_backend(
    model: Decoder,
    pool_bytes: int | None,
    max_round_tokens: int,
    stride: int = GRID,
    progress: Progress = lambda done, total: None,
) -> Backend:
    """Memory for `pool_bytes` of checkpoints on the model's device; None for as much as is fit.

    Tiers below take checkpoints every `stride` tokens. On a GPU kernels are compiled and graphs of
    small rounds captured; `progress` is called as (done, total), in kernels and then in graphs.

    On a CPU memory that was never written costs nothing, so pages and states may each have room for
    the whole budget, and the pool holds their sum below it. On a GPU each gets half.

    Raises:
        ModelLoadError: the pool does not hold a single page, or not what it needs is free.
    """
    device = model.embedding.device
    on_gpu = device.type == "cuda"
    if pool_bytes is None:
        free = torch.cuda.mem_get_info(device)[0] if on_gpu else 0
        pool_bytes = int(CUDA_POOL_SHARE * free) if on_gpu else CPU_POOL_BYTES
    page_bytes = model.layout.page_bytes(model.dtype)
    state_bytes = model.layout.state_bytes(model.dtype)
    each = pool_bytes // 2 if on_gpu and state_bytes else pool_bytes
    if each < max(page_bytes, state_bytes):
        raise ModelLoadError(
            f"a pool of {pool_bytes} bytes is too small: a page takes {page_bytes} and a state "
            f"{state_bytes}; give it more (pool_bytes)."
        )
    try:
        storage = Storage(
            model.layout,
            num_pages=each // page_bytes,
            num_states=each // state_bytes if state_bytes else 0,
            dtype=model.dtype,
            device=device,
        )
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(f"a pool of {pool_bytes} bytes: {error}; lower pool_bytes.") from error
    pool = Pool(
        num_pages=storage.num_pages,
        num_states=storage.num_states,
        page_bytes=page_bytes,
        state_bytes=state_bytes,
        budget_bytes=pool_bytes,
        cost=model.cost,
        stride=stride,
    )
    return Backend(storage, pool, _executor(model, storage, max_round_tokens, progress))


def _executor(
    model: Decoder, storage: Storage, max_round_tokens: int, progress: Progress
) -> Executor:
    if storage.device.type != "cuda":
        return PlainExecutor(model, storage)
    from flide_engine.kernels.fork_attention.triton_kernel import tile_rows

    layout = model.layout
    rows = tile_rows(layout.heads // layout.kv_heads, layout.head_dim, model.dtype)
    most_pages = min(storage.num_pages, -(-model.max_positions // GRID))
    executor = GraphExecutor(model, storage, rows, ladder(max_round_tokens, most_pages))
    executor.warm_up(progress)
    return executor
