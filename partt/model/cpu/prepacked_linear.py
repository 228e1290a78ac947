"""Linear layers for inference on a CPU: oneDNN with prepacked weights is faster than MKL.

oneDNN compiles a kernel for every new number of rows, which takes half a millisecond. So only full groups of
jets, whose sizes repeat, are computed this way.

Prepacked weights are state outside of the modules, owned by `prepacked_weights`: they exist during one
forward pass only, so that the next pass sees any change of the weights, and for one thread only, because
several threads may run the same network.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn

from partt.model.cpu.padded_linear import linear

MIN_ROWS = 896  # of groups of up to 1024; smaller ones are remainders of varying size
MIN_WIDTH = 128  # with 64 columns it was slower

_this_thread = threading.local()  # .weights: Linear -> prepacked weight, inside `prepacked_weights` only


@contextmanager
def prepacked_weights() -> Iterator[None]:
    """Let the Linear layers of this thread prepack their weights, until the end of the context."""
    _this_thread.weights = {}
    try:
        yield
    finally:
        del _this_thread.weights


class Linear(nn.Linear):
    """nn.Linear, with prepacked weights where that is faster."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., D) from x (..., C)."""
        if self.training and torch.is_grad_enabled():
            return linear(x, self.weight, self.bias)
        weights: dict[Linear, Tensor] | None = getattr(_this_thread, "weights", None)
        if weights is None or not self._is_faster_prepacked(x):
            return super().forward(x)
        if self not in weights:
            weights[self] = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), 1024)  # noqa: SLF001
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weights[self], self.bias, "none", [], "")  # noqa: SLF001
        return y

    def _is_faster_prepacked(self, x: Tensor) -> bool:
        return (
            x.is_cpu
            and x.dtype == torch.float32
            and not torch.is_grad_enabled()
            and self.in_features >= MIN_WIDTH
            and x.numel() >= MIN_ROWS * self.in_features
            and is_available()
        )


@cache
def is_available() -> bool:
    """Return whether this torch has oneDNN with the two functions used here."""
    names = ("_linear_pointwise", "_reorder_linear_weight")
    with_mkldnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return with_mkldnn and all(hasattr(torch.ops.mkldnn, name) for name in names)
