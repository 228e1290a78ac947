"""Attention among the particles of a jet, biased by pair features, and the class token's attention.

Axes: B jets, P particles of a jet, D width, H heads, d = D / H channels of a head.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.model.attention_layer import AttentionLayer, AttentionTerms
from partt.model.cpu.dropout import Dropout
from partt.model.cpu.padded_linear import linear
from partt.model.cpu.prepacked_linear import Linear


class Attention(AttentionLayer):
    """Weights of both kinds of attention: input and output projections, and a scale per head."""

    def __init__(self, width: int, num_heads: int, *, scale_heads: bool, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = Linear(width, 3 * width, bias=bias)
        self.out_proj = nn.Linear(width, width, bias=bias)
        self.head_scale = nn.Parameter(torch.ones(num_heads)) if scale_heads else None

    def project_out(self, x: Tensor) -> Tensor:
        """Mix the heads (..., D); the outputs of "head" h, its D / H channels, are scaled by c_h."""
        weight: Tensor = self.out_proj.weight
        bias: Tensor | None = self.out_proj.bias
        if self.head_scale is not None:  # scaling the weights is cheaper than scaling every row
            scale = self.head_scale[:, None].expand(-1, x.shape[-1] // self.num_heads).reshape(-1)  # (D,)
            weight, bias = weight * scale[:, None], None if bias is None else bias * scale
        product = linear if self.training and torch.is_grad_enabled() else functional.linear
        return product(x, weight, bias)

    def silence(self, head: int) -> None:
        """Switch a head off for good: its outputs become 0."""
        width = self.out_proj.in_features // self.num_heads
        with torch.no_grad():
            self.out_proj.weight[:, head * width : (head + 1) * width] = 0


class SelfAttention(Attention):
    """softmax(Q Kᵀ / sqrt(d) + U) V with the pair bias U (arXiv:2202.03772, eq. 4)."""

    def __init__(
        self, width: int, num_heads: int, *, scale_heads: bool, dropout: float, bias: bool = True
    ) -> None:
        super().__init__(width, num_heads, scale_heads=scale_heads, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return (B, P, D) from x (B, P, D) and the bias (H, B, P, P), which also hides padded keys."""
        num_jets, num_particles, width = x.shape
        qkv = self._project_in(x)
        # torch's fused kernel on a CPU takes neither dropout nor a gradient of the bias, and is slower.
        if x.is_cpu:
            mixed = self._attend(qkv, bias)
        else:
            probability = self.dropout.probability if self.training else 0.0
            q, k, v = qkv
            mixed = functional.scaled_dot_product_attention(q, k, v, bias, dropout_p=probability)
        return self.project_out(mixed.permute(1, 2, 0, 3).reshape(num_jets, num_particles, width))

    def terms(self, x: Tensor, bias: Tensor | None) -> AttentionTerms:
        """Return the terms of the scores of one jet, from the inputs of `forward`."""
        q, k, _ = self._project_in(x)[:, :, 0]  # (H, P, d) each
        content = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        return AttentionTerms(content, None if bias is None else bias[:, 0].expand_as(content))

    def _project_in(self, x: Tensor) -> Tensor:
        """Return queries, keys and values (3, H, B, P, d)."""
        heads = (*x.shape[:2], 3, self.num_heads, x.shape[2] // self.num_heads)
        qkv: Tensor = self.in_proj(x).view(heads).permute(2, 3, 0, 1, 4)
        return qkv

    def _attend(self, qkv: Tensor, bias: Tensor | None) -> Tensor:
        """Return (H, B, P, d) without torch's fused kernel."""
        shape = qkv.shape[1:]  # (H, B, P, d)
        q, k, v = qkv.contiguous().flatten(1, 2)  # (H B, P, d) each; one copy, instead of one in each product
        scale = 1 / math.sqrt(shape[-1])
        if bias is None:
            scores = (q * scale) @ k.transpose(1, 2)  # (H B, P, P)
        else:
            bias = bias.expand(*shape[:-1], shape[-2]).flatten(0, 1)
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        mixed: Tensor = self.dropout(scores.softmax(-1)) @ v
        return mixed.view(shape)


class ClassAttention(Attention):
    """The class token attends to itself and to all particles (CaiT, arXiv:2103.17239).

    One query per jet: q · (Wk u + bk) = (Wkᵀ q) · u + constant, and the weighted mean of the values
    Wv u + bv is Wv (mean of u) + bv. So no particle is projected to a key or a value, and the
    constant drops out of the softmax.
    """

    def forward(self, token: Tensor, keys: Tensor, bias: Tensor | None) -> Tensor:
        """Return (B, D) from the token (B, D), keys = values (B, 1 + P, D), bias (B, 1, 1 + P)."""
        scores = self._scores(token, keys)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        mean = (weights @ keys).transpose(0, 1)  # (H, B, D)
        weight_v = self.in_proj.weight.chunk(3)[2]  # (D, D)
        has_bias = self.in_proj.bias is not None
        bias_v = self.in_proj.bias.chunk(3)[2] if has_bias else 0.0
        values = mean @ weight_v.view(self.num_heads, -1, mean.shape[-1]).transpose(1, 2)  # (H, B, d)
        return self.project_out(values.transpose(0, 1).flatten(1) + bias_v)

    def terms(self, token: Tensor, keys: Tensor, bias: Tensor | None) -> AttentionTerms:
        """Return the terms of the scores of one jet, from the inputs of `forward`; the token is first."""
        content = self._scores(token, keys)[0, :, None]  # (H, 1, 1 + P)
        mask = None if bias is None else bias[0, :, None].expand_as(content)
        return AttentionTerms(content, mask, num_tokens=(1, 1))

    def _scores(self, token: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, H, 1 + P) without bias."""
        width = token.shape[-1]
        head_dim = width // self.num_heads
        weight_q, weight_k, _ = self.in_proj.weight.chunk(3)  # (D, D) each
        has_bias = self.in_proj.bias is not None
        bias_q = self.in_proj.bias.chunk(3)[0] if has_bias else None
        q = functional.linear(token, weight_q, bias_q).view(-1, self.num_heads, head_dim) / math.sqrt(
            head_dim
        )
        q = q.transpose(0, 1) @ weight_k.view(self.num_heads, head_dim, width)  # (H, B, D)
        return q.transpose(0, 1) @ keys.transpose(1, 2)


def mask_to_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where the mask is True and a large negative number elsewhere, of the mask's shape.

    Finite, so that a jet without any particle gives a uniform softmax instead of NaN.
    """
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, torch.finfo(dtype).min / 2)
