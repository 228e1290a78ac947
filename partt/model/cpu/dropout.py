"""Dropout with cheaper random numbers on a CPU.

torch draws one random number per element (8 ns each: a third of a training step); here each 64-bit number
serves eight elements. Element i is dropped if 16 bits, read as an integer, are below a threshold. Each byte
is the upper half of one such integer and the lower half of another one. The lower half decides in one of 256
cases only, so that elements are independent for all that training can see, and the probability is exact to
1/65536.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Set elements to zero with a probability, rounded to 1/65536, and scale the others to keep the mean."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return x (any shape), in training with random elements set to zero."""
        if not self.training or self.probability == 0:
            return x
        if x.device.type != "cpu" or x.dtype != torch.float32:
            return functional.dropout(x, self.probability)
        y: Tensor = _Drop.apply(x, RandomBits(x.shape, self.probability))  # type: ignore[no-untyped-call]
        return y


class RandomBits:
    """Which elements of a tensor of float32 are dropped: two bytes each."""

    def __init__(self, shape: torch.Size, probability: float) -> None:
        threshold = round(probability * 65536)
        self.scale = 65536 / (65536 - threshold)  # of the others
        self._threshold = threshold - 32769  # what is not above it is dropped
        self._bits = _random_integers(shape) if threshold else None

    def drop(self, x: Tensor) -> Tensor:
        """Return x with elements set to zero; the others are not scaled."""
        if self._bits is None:
            return x
        y: Tensor = torch.ops.aten.threshold_backward(x, self._bits.float(), self._threshold)
        return y

    def scaled_(self, x: Tensor) -> Tensor:
        """Scale x, in place, by the factor that keeps the mean."""
        return x if self._bits is None else x.mul_(self.scale)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bits: RandomBits) -> Tensor:
        ctx.bits = bits
        return bits.scaled_(bits.drop(x))

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, None]:
        bits: RandomBits = ctx.bits
        return bits.scaled_(bits.drop(grad_y)), None


def _random_integers(shape: torch.Size) -> Tensor:
    """Return random int16."""
    size = shape.numel()
    half = -(-size // 8) * 4
    both = torch.empty(2, half, dtype=torch.int16)
    both[0].view(torch.int64).random_(-(2**63), None)
    # exchange upper and lower bytes; the sign of the byte below does not matter
    torch.bitwise_left_shift(both[0], 8, out=both[1])
    both[1] += both[0] >> 8
    return both.view(-1)[:size].view(shape)
