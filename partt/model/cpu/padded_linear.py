"""Linear layers in training on a CPU, by oneDNN: on AMD's Zen 5 it is twice as fast as MKL.

On Zen 4, whose AVX-512 units are half as wide, it is slower than MKL; other CPUs were not tried.

oneDNN compiles a kernel for every new number of rows, which takes as long as a product. So rows of zeros are
added up to a multiple of 64: then sizes repeat.

Axes: N rows, C channels in, D channels out.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

STEP = 64  # rows
ZEN_5 = 26  # family of CPUs
MIN_ROWS, MIN_WIDTH = 128, 128  # below this MKL is as fast


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return functional.linear(x, weight, bias) (..., D) of x (..., C)."""
    if not is_faster(x, weight):
        return functional.linear(x, weight, bias)
    y: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


def is_faster(x: Tensor, weight: Tensor, min_width: int = MIN_WIDTH) -> bool:
    """Return whether oneDNN computes this product, and faster than MKL."""
    return (
        x.is_cpu
        and x.dtype == torch.float32
        and min(weight.shape) >= min_width
        and x.numel() >= MIN_ROWS * x.shape[-1]
        and not torch.is_autocast_enabled("cpu")
        and is_available()
        and is_zen_5()
    )


@cache
def is_available() -> bool:
    """Return whether this torch has oneDNN with the function used here."""
    with_mkldnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return with_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def is_zen_5() -> bool:
    """Return whether this CPU is AMD's Zen 5, or a later one."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:  # not Linux
        return False
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    return facts.get("vendor_id") == "AuthenticAMD" and int(facts.get("cpu family", 0)) >= ZEN_5


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a bᵀ + bias (N, D) of a (N, C) and b (D, C), either of which may be a transposed view."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")  # noqa: SLF001
    return y


def padded_rows(x: Tensor, step: int = STEP) -> Tensor:
    """Return x (..., C) as rows (N, C), with rows of zeros up to a multiple of `step`."""
    rows = x.reshape(-1, x.shape[-1])
    missing = -len(rows) % step
    return functional.pad(rows, (0, 0, 0, missing)) if missing else rows


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = padded_rows(x)
        ctx.save_for_backward(rows, weight)
        return product(rows, weight, bias)[: x.numel() // x.shape[-1]].view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad_rows = padded_rows(grad_y)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            num_rows = grad_y.numel() // grad_y.shape[-1]
            grad_x = product(grad_rows, weight.T)[:num_rows].view(*grad_y.shape[:-1], -1)
        if ctx.needs_input_grad[1]:
            grad_weight = product(grad_rows.T, rows.T)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_rows.sum(0)
        return grad_x, grad_weight, grad_bias
