"""For all tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from tests.kernels.interpreter import mend

if TYPE_CHECKING:
    import pytest

CUDA = torch.cuda.is_available()
if not CUDA:
    # Before any kernel is imported: the decorator decides there and then.
    os.environ["TRITON_INTERPRET"] = "1"
    mend()

# The models here are small: a second thread gains nothing, and on a busy machine costs much.
torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none."""
    if CUDA:
        return
    needs = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=needs)
    items[:] = [item for item in items if item not in needs]
