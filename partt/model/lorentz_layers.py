"""Layers of L-GATr-slim (arXiv:2512.17011), which commute with Lorentz transformations of the vectors.

A token has vectors and scalars. Channels of vectors are mixed, never their components; vectors meet scalars
in inner products <a, b> = a0 b0 - a1 b1 - a2 b2 - a3 b3 only.

Axes: G jets of a group, P tokens of a jet (padded), N = G P tokens of the group, V vector channels, S scalar
channels, H heads. The four components of vectors, E, px, py, pz, are the first axis, so that a layer is one
matrix product with 4 N rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.model.lgatr_slim_config import LGATrSlimConfig
from partt.model.precision import full_precision

NORM_EPS = 0.01
ATTENTION_INIT = 0.1  # factor on the initial weights of the attention


class Tokens(NamedTuple):
    """Tokens of some jets, each with vectors and scalars."""

    vectors: Tensor  # (4, N, V)
    scalars: Tensor  # (N, S)

    def first(self, num_jets: int) -> "Tokens":
        """Return the first token of each jet."""
        vectors, scalars = self
        num_tokens = scalars.shape[0] // num_jets
        rows = torch.arange(num_jets, device=scalars.device) * num_tokens
        return Tokens(vectors[:, rows], scalars[rows])

    def plus(self, change: "Tokens") -> "Tokens":
        """Return the tokens after a change of vectors and scalars."""
        return Tokens(self.vectors + change.vectors, self.scalars + change.scalars)


def inner_product(a: Tensor, b: Tensor) -> Tensor:
    """Return <a, b> (...) of vectors (4, ...)."""
    product = a[0] * b[0]
    for component in (1, 2, 3):
        product = torch.addcmul(product, a[component], b[component], value=-1)
    return product


def norm_factor(x: Tokens) -> Tensor:
    """Return 1 / the root of the mean of |<v, v>| and s² over all channels (..., 1)."""
    vectors, scalars = x
    num_channels = vectors.shape[-1] + scalars.shape[-1]
    total = inner_product(vectors, vectors).abs().sum(-1) + scalars.square().sum(-1)
    return torch.rsqrt(total / num_channels + NORM_EPS)[..., None]


def rms_norm(x: Tokens) -> Tokens:
    """Norm vectors and scalars, by one factor for all channels of a token."""
    factor = norm_factor(x)
    return Tokens(x.vectors * factor, x.scalars * factor)


class LorentzLinear(nn.Module):
    """v' = W v without a bias, the same for all components; s' = W s + b."""

    def __init__(self, vectors: tuple[int, int], scalars: tuple[int, int], init: float = 1.0) -> None:
        super().__init__()
        self.vectors = nn.Linear(*vectors, bias=False)
        self.scalars = nn.Linear(*scalars)
        with torch.no_grad():
            self.vectors.weight *= init
            self.scalars.weight *= init

    def forward(self, x: Tokens) -> Tokens:
        """Return tokens with other numbers of channels."""
        return Tokens(self.mix_vectors(x.vectors), self.mix_scalars(x.scalars))

    def mix_vectors(self, vectors: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return vectors (4, ..., V') from (4, ..., V); `rows`: some of the V' only."""
        with full_precision(vectors):
            return functional.linear(vectors, self.vectors.weight[rows])

    def mix_scalars(self, scalars: Tensor, rows: slice = slice(None)) -> Tensor:
        """Return scalars (..., S') from (..., S), by a product in mixed precision if that is on."""
        mixed = functional.linear(scalars, self.scalars.weight[rows], self.scalars.bias[rows])
        return mixed.to(scalars.dtype)


class LorentzAttention(nn.Module):
    """softmax(<q, k> / sqrt(d)) v, where q, k and v are the vectors and scalars of a head: d numbers."""

    def __init__(self, config: LGATrSlimConfig) -> None:
        super().__init__()
        v, s, self.num_heads = config.vector_channels, config.scalar_channels, config.num_heads
        self.head_channels = (v // self.num_heads, s // self.num_heads)
        # rows of the weights: (q, k, v) x heads x channels of a head
        self.linear_in = LorentzLinear((v, 3 * v), (s, 3 * s), ATTENTION_INIT)
        self.linear_out = LorentzLinear((v, v), (s, s), ATTENTION_INIT)

    def forward(self, x: Tokens, num_jets: int, bias: Tensor | None, *, first_only: bool = False) -> Tokens:
        """Return what tokens learn from those of their jet; `first_only`: only the first of each jet does.

        bias (G, 1, 1, P) hides padded keys.
        """
        if first_only:
            (q,) = self._heads(x.first(num_jets), num_jets, (0, 1))
            k, v = self._heads(x, num_jets, (1, 3))
        else:
            q, k, v = self._heads(x, num_jets, (0, 3))  # (G, H, P, d) each
        with full_precision(q):
            mixed = functional.scaled_dot_product_attention(q, k, v, bias)
        mixed = mixed.transpose(1, 2).flatten(0, 1)  # (N, H, d)
        channels = self.head_channels[0]
        vectors, scalars = mixed[..., : 4 * channels], mixed[..., 4 * channels :]
        vectors = vectors.reshape(-1, self.num_heads, 4, channels).permute(2, 0, 1, 3)  # (4, N, H, V / H)
        out: Tokens = self.linear_out(Tokens(vectors.flatten(2), scalars.flatten(1)))
        return out

    def _heads(self, x: Tokens, num_jets: int, parts: tuple[int, int]) -> Tensor:
        """Return queries, keys, values, or some of these, each normed by itself: (parts, G, H, P, d)."""
        v, s = self.head_channels
        first, last = (part * self.num_heads for part in parts)
        vectors = self.linear_in.mix_vectors(x.vectors, slice(first * v, last * v))
        scalars = self.linear_in.mix_scalars(x.scalars, slice(first * s, last * s))
        heads = Tokens(vectors.view(4, -1, last - first, v), scalars.view(-1, last - first, s))
        factor = norm_factor(heads)  # (N, 3 H, 1)
        signs = factor.new_ones(4, 1, last - first, 1)
        if parts[0] == 0:  # <q, k> is a plain product if the metric is applied to q
            signs[1:, :, : self.num_heads] = -1
        vectors = (heads.vectors * (factor * signs)).permute(1, 2, 0, 3)  # (N, 3 H, 4, V / H)
        both = torch.cat((vectors.flatten(2), heads.scalars * factor), dim=-1)
        both = both.view(num_jets, -1, parts[1] - parts[0], self.num_heads, both.shape[-1])
        return both.permute(2, 0, 3, 1, 4)


class LorentzFeedForward(nn.Module):
    """Linear(GLU(x)): vectors are gated by GELU(<g1, g2>), scalars by GELU(h), all of them linear in x."""

    def __init__(self, config: LGATrSlimConfig) -> None:
        super().__init__()
        v, s = config.vector_channels, config.scalar_channels
        hidden_v, hidden_s = config.mlp_ratio * v, config.mlp_ratio * s
        self.linear_in = LorentzLinear((v, 3 * hidden_v), (s, 2 * hidden_s))
        self.linear_out = LorentzLinear((hidden_v, v), (hidden_s, s))

    def forward(self, x: Tokens) -> Tokens:
        """Return tokens of the same channels."""
        return Tokens(self.of_vectors(x.vectors), self.of_scalars(x.scalars))

    def of_vectors(self, vectors: Tensor) -> Tensor:
        """Return vectors (4, N, V)."""
        hidden, gate_1, gate_2 = self.linear_in.mix_vectors(vectors).chunk(3, dim=-1)
        return self.linear_out.mix_vectors(functional.gelu(inner_product(gate_1, gate_2)) * hidden)

    def of_scalars(self, scalars: Tensor) -> Tensor:
        """Return scalars (N, S)."""
        hidden, gate = self.linear_in.mix_scalars(scalars).chunk(2, dim=-1)
        return self.linear_out.mix_scalars(functional.gelu(gate) * hidden)


class LorentzBlock(nn.Module):
    """Attention, then a feed-forward of each token, both pre-norm and with residual connections."""

    def __init__(self, config: LGATrSlimConfig) -> None:
        super().__init__()
        self.attention = LorentzAttention(config)
        self.feed_forward = LorentzFeedForward(config)

    def forward(self, x: Tokens, num_jets: int, bias: Tensor | None) -> Tokens:
        """Return the tokens after the block."""
        x = x.plus(self.attention(rms_norm(x), num_jets, bias))
        return x.plus(self.feed_forward(rms_norm(x)))


class LastLorentzBlock(LorentzBlock):
    """The last block, of which only scalars are used: those of the first token of each jet, or of all."""

    def __init__(self, config: LGATrSlimConfig) -> None:
        super().__init__(config)
        # Parameters without any gradient would stop training by several processes.
        for layer in (self.feed_forward.linear_in, self.feed_forward.linear_out):
            layer.vectors.requires_grad_(False)

    def scalars(self, x: Tokens, num_jets: int, bias: Tensor | None, *, first_only: bool) -> Tensor:
        """Return the scalars (G, S) of the first tokens, or those of all tokens (N, S)."""
        change = self.attention(rms_norm(x), num_jets, bias, first_only=first_only)
        x = (x.first(num_jets) if first_only else x).plus(change)
        return x.scalars + self.feed_forward.of_scalars(rms_norm(x).scalars)
