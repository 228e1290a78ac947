"""From features to tokens, and from pair features to the attention bias.

Axes: T particles of a batch, F features, D width, N pairs, H heads. BatchNorm sees real particles and real
pairs of the whole batch, because callers hand over packed rows in training.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def batch_norm(x: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """Normalise (..., C) over all but the last axis; a single row has no variance: take the running one."""
    rows = x.reshape(-1, x.shape[-1])
    if norm.training and len(rows) < 2:
        rows = F.batch_norm(rows, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    else:
        rows = norm(rows)
    return rows.view(x.shape)


class ParticleEmbedding(nn.Module):
    """BatchNorm, then LayerNorm -> Linear -> GELU for each width."""

    def __init__(self, num_features: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(num_features)
        inputs = (num_features, *widths[:-1])
        self.norms = nn.ModuleList(nn.LayerNorm(width) for width in inputs)
        self.linears = nn.ModuleList(nn.Linear(*widths) for widths in zip(inputs, widths, strict=True))

    def forward(self, particles: Tensor) -> Tensor:
        """Return (..., D) from features (..., F)."""
        x = batch_norm(particles, self.input_norm)
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = F.gelu(linear(norm(x)))
        return x


class LinearEmbedding(nn.Module):
    """BatchNorm, then one Linear."""

    def __init__(self, num_features: int, width: int) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(num_features)
        self.linear = nn.Linear(num_features, width)

    def forward(self, particles: Tensor) -> Tensor:
        """Return (..., D) from features (..., F)."""
        y: Tensor = self.linear(batch_norm(particles, self.input_norm))
        return y


class PairEmbedding(nn.Module):
    """BatchNorm, then Linear -> BatchNorm -> GELU for each width: one number per head and pair."""

    def __init__(self, num_features: int, widths: tuple[int, ...], *, last_activation: bool) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(num_features)
        inputs = (num_features, *widths[:-1])
        self.linears = nn.ModuleList(nn.Linear(*widths) for widths in zip(inputs, widths, strict=True))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)
        self.num_activations = len(widths) if last_activation else len(widths) - 1

    def forward(self, features: Tensor) -> Tensor:
        """Return (..., N, H) from pair features (..., N, 4)."""
        x = batch_norm(features, self.input_norm) if self.training else features
        for index, (linear, norm) in enumerate(zip(self.linears, self.norms, strict=True)):
            if self.training:
                x = batch_norm(linear(x), norm)
            else:
                x = F.linear(x, *_folded(linear, norm, self.input_norm if index == 0 else None))
            if index < self.num_activations:
                x = F.gelu(x)
        return x


def _folded(linear: nn.Linear, norm: nn.BatchNorm1d, input_norm: nn.BatchNorm1d | None) -> tuple[Tensor, Tensor]:
    """Return weight and bias of norm(linear(input_norm(x))) in evaluation, where a norm is a fixed line."""
    weight, bias = linear.weight, linear.bias
    if input_norm is not None:
        scale, shift = _line(input_norm)
        weight, bias = weight * scale, bias + weight @ shift
    scale, shift = _line(norm)
    return weight * scale[:, None], bias * scale + shift


def _line(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None and norm.running_var is not None  # noqa: S101, PT018 (for mypy)
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return scale, norm.bias - norm.running_mean * scale
