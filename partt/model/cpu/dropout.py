"""Dropout with cheaper random numbers on a CPU.

torch draws one random number per element (8 ns each: a third of a training step); here each 64-bit number
serves four elements.
"""

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
        return x * _mask(x.shape, self.probability)


def _mask(shape: torch.Size, probability: float) -> Tensor:
    """Return 0 with the given probability, else 1 / (1 - probability), as float32."""
    threshold = round(probability * 65536)
    scale = torch.tensor(65536 / (65536 - threshold)).view(torch.int32).item()
    num_words = -(-shape.numel() // 2)
    bits = torch.empty(-(-num_words // 2), dtype=torch.int64).random_(-(2**63), None).view(torch.int32)
    mask = torch.empty(2, len(bits), dtype=torch.int32)
    # 16 bits + (65536 - threshold) carry into bit 16 unless they are below the threshold; the carry
    # times the bit pattern of the float is the float, or zero.
    for half, source in zip(mask, (bits, bits >> 16), strict=True):
        torch.bitwise_and(source, 0xFFFF, out=half)
    mask += 65536 - threshold
    mask >>= 16
    mask *= scale
    return mask.view(torch.float32).view(-1)[: shape.numel()].view(shape)
