"""A few numbers as a tensor, on any device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def numbers_like(tensor: Tensor, numbers: Sequence[float]) -> Tensor:
    """Return numbers as a tensor (N,) with type and device of another.

    They are filled in one by one on the device. torch.tensor would copy them from the host, and stop a GPU.
    """
    return torch.stack([tensor.new_full((), number) for number in numbers])
