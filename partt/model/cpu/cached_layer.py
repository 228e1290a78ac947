"""BatchNorm -> GELU -> Linear in training, fused, on chunks of rows that fit the CPU's cache.

A batch has a hundred thousand pairs of particles. Layer by layer, each elementwise operation and its gradient
would read and write all rows in memory, and autograd would keep three copies. Here only the input is kept,
and the rest is recomputed in the backward pass.

Axes: N rows, C channels in, D channels out.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.model.cpu.padded_linear import is_faster, padded_rows, product

ROWS_IN_CACHE = 4096
GELU_STEP = 1024  # rows


def norm_gelu_linear(x: Tensor, norm: nn.BatchNorm1d, linear: nn.Linear) -> Tensor:
    """Return linear(gelu(norm(x))) (N, D) of x (N, C), norm being in training mode."""
    mean, variance = _moments(x.detach())
    _update_running(norm, len(x), mean, variance)
    bias = cast("Tensor | None", linear.bias)
    bias = x.new_zeros(linear.out_features) if bias is None else bias
    y: Tensor = _NormGeluLinear.apply(  # type: ignore[no-untyped-call]
        x, mean, torch.rsqrt(variance + norm.eps), norm.weight, norm.bias, linear.weight, bias
    )
    return y


def gelu(x: Tensor) -> Tensor:
    """Return the GELU of x (N, C), computed on padded rows: oneDNN compiles a kernel for every new size."""
    return functional.gelu(padded_rows(x, GELU_STEP))[: len(x)] if x.is_cpu else functional.gelu(x)


def _gelu_backward(grad: Tensor, x: Tensor, out: Tensor) -> None:
    if len(x) % GELU_STEP == 0:
        torch.ops.aten.gelu_backward.grad_input(grad, x, grad_input=out)
        return
    padded = torch.ops.aten.gelu_backward(padded_rows(grad, GELU_STEP), padded_rows(x, GELU_STEP))
    out.copy_(padded[: len(x)])


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (C,) over the rows."""
    mean = x.mean(0)
    squares = [(rows - mean).square_().sum(0) for (rows,) in _chunks(x)]
    return mean, torch.stack(squares).sum(0) / len(x)


@torch.no_grad()
def _update_running(norm: nn.BatchNorm1d, num_rows: int, mean: Tensor, variance: Tensor) -> None:
    assert norm.running_mean is not None and norm.running_var is not None  # noqa: S101, PT018 (for mypy)
    assert norm.momentum is not None and norm.num_batches_tracked is not None  # noqa: S101, PT018
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (num_rows / (num_rows - 1)), norm.momentum)
    norm.num_batches_tracked.add_(1)


class _NormGeluLinear(torch.autograd.Function):
    """z = scale * (x - mean) / sigma + shift;  y = weight gelu(z) + bias."""

    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any,
        x: Tensor,
        mean: Tensor,
        inverse_sigma: Tensor,
        scale: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(x, mean, inverse_sigma, scale, shift, weight)
        slope = scale * inverse_sigma
        offset = shift - mean * slope
        y = x.new_empty(len(x), len(bias))
        for rows, out in _chunks(x, y):
            active = gelu(torch.addcmul(offset, rows, slope))
            if _by_onednn(rows, weight):
                out.copy_(product(active, weight, bias))
            else:
                torch.addmm(bias, active, weight.T, out=out)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, inverse_sigma, scale, shift, weight = ctx.saved_tensors
        slope = scale * inverse_sigma
        grad_x = torch.empty_like(x)
        grad_weight, grad_shift, grad_slope = (torch.zeros_like(v) for v in (weight, shift, scale))
        grad_bias = x.new_zeros(len(weight))
        for rows, grad_rows, grad_out in _chunks(x, grad_y, grad_x):
            centred = rows - mean
            z = torch.addcmul(shift, centred, slope)
            grad_bias += grad_rows.sum(0)
            if _by_onednn(rows, weight):
                grad_weight += product(grad_rows.T, gelu(z).T)
                grad_active = product(grad_rows, weight.T)
            else:
                grad_weight.addmm_(grad_rows.T, gelu(z))
                grad_active = grad_rows @ weight
            _gelu_backward(grad_active, z, grad_out)
            grad_shift += grad_out.sum(0)
            grad_slope += centred.mul_(grad_out).sum(0)
        # grad_x holds the gradient of z. That of x also flows through mean and sigma:
        # slope (dz - <dz> - (x - mean) / sigma² <dz (x - mean)>)
        tilt = slope * inverse_sigma.square() * grad_slope / len(x)
        constant = mean * tilt - slope * grad_shift / len(x)
        for rows, grad_rows in _chunks(x, grad_x):
            grad_rows.mul_(slope).addcmul_(rows, tilt, value=-1).add_(constant)
        grad_scale = grad_slope * inverse_sigma
        return grad_x, None, None, grad_scale, grad_shift, grad_weight, grad_bias


def _by_onednn(rows: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN is faster: for full chunks, whose size repeats."""
    return len(rows) == ROWS_IN_CACHE and is_faster(rows, weight, min_width=64)


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut all tensors into the same ranges of rows."""
    return zip(*(torch.split(tensor, ROWS_IN_CACHE) for tensor in tensors), strict=True)
