"""For all tests."""

from __future__ import annotations

import torch

# The models here are small: a second thread gains nothing, and on a busy machine costs much.
torch.set_num_threads(1)
