"""Triton without a GPU runs in its interpreter; and memory starts as NaN."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.kernels.interpreter import mend

if TYPE_CHECKING:
    from collections.abc import Callable

CUDA = torch.cuda.is_available()
if not CUDA:
    # Before any kernel is imported: the decorator decides there and then.
    os.environ["TRITON_INTERPRET"] = "1"
    mend()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none."""
    if CUDA:
        return
    needs = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=needs)
    items[:] = [item for item in items if item not in needs]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the kernels run."""
    return torch.device("cuda" if CUDA else "cpu")


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh tensors hold NaN, so what a kernel forgets to write is found."""
    empty, new_empty, empty_like = torch.empty, torch.Tensor.new_empty, torch.empty_like

    def poison(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def made(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return made

    monkeypatch.setattr(torch, "empty", poison(empty))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(new_empty))
    monkeypatch.setattr(torch, "empty_like", poison(empty_like))
