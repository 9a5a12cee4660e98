"""Kernels compiled all at once, before the first round needs one after the other."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import triton
from triton import knobs

if TYPE_CHECKING:
    from collections.abc import Callable


def compile_ahead(launch: Callable[[], object], progress: Callable[[int, int], None]) -> None:
    """Compile the kernels that `launch` launches, each in a thread of its own.

    Nothing is launched meanwhile, so what `launch` computes says nothing. Triton keeps what it
    compiled on disk; then this is quick. (Its compiler leaves Python alone, so threads are enough.)

    Args:
        launch: runs every kernel that is wanted, with arguments as they will be.
        progress: called as (done, total), in kernels.
    """
    wanted: dict[tuple[str, str], Any] = {}

    def note(*, fn: Any, compile: dict[str, Any], **_: object) -> bool:
        wanted[fn.name, compile["specialization_data"]] = fn.jit_function
        return True

    with knobs.runtime.scope():
        knobs.runtime.jit_cache_hook = note
        launch()
    with ThreadPoolExecutor(os.cpu_count()) as pool, triton.AsyncCompileMode(pool) as mode:
        for (_, data), kernel in wanted.items():
            kernel.preload(data)
        for done, future in enumerate(as_completed(mode.raw_futures), 1):
            future.result()
            progress(done, len(wanted))
