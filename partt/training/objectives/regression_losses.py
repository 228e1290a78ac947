"""Losses of regressions, jet by jet: pure functions of outputs and targets of order 1.

Axes: B jets, Q quantiles.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from partt.model.device_numbers import numbers_like


def log_cosh(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return ln cosh(p - t) (B,): x²/2 for small differences x, |x| - ln 2 for large ones.

    Computed as |x| + ln(1 + exp(-2|x|)) - ln 2, which does not overflow.
    """
    size = (predictions - targets).abs()
    return size + (-2 * size).exp().log1p() - math.log(2)


def squared_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return (p - t)² (B,); the best prediction is the mean of the targets."""
    return (predictions - targets).square()


def absolute_error(predictions: Tensor, targets: Tensor) -> Tensor:
    """Return |p - t| (B,); the best prediction is the median of the targets."""
    return (predictions - targets).abs()


def gaussian_nll(means: Tensor, log_variances: Tensor, targets: Tensor) -> Tensor:
    """Return [s + (t - μ)² e⁻ˢ] / 2 (B,) with s = ln σ²: -ln of a normal density, without ln(2π) / 2."""
    return (log_variances + (targets - means).square() * (-log_variances).exp()) / 2


def pinball(predictions: Tensor, targets: Tensor, quantiles: Sequence[float]) -> Tensor:
    """Return Σ_q max(q (t - p_q), (q - 1)(t - p_q)) (B,) of predictions (B, Q).

    The best p_q is the quantile q: a fraction q of the targets is below it.
    """
    levels = numbers_like(predictions, quantiles)
    above = targets[:, None] - predictions
    return torch.maximum(levels * above, (levels - 1) * above).sum(dim=1)
