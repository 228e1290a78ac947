"""Mixed precision, where a network must not have it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """Switch mixed precision off for what is computed on the device of a tensor, if it is on."""
    device = tensor.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()
