"""The blocks of the Particle Transformer: attention and feed-forward layers with residual connections.

Axes: B jets, P particles of a jet, D width, H heads.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.model.attention import ClassAttention, SelfAttention
from partt.model.cpu.dropout import Dropout
from partt.model.cpu.prepacked_linear import Linear
from partt.model.particle_transformer_config import ParticleTransformerConfig


class DropPath(nn.Module):
    """Set the change of a block to zero for random jets, and scale it for the others (arXiv:1603.09382)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, change: Tensor) -> Tensor:
        """Return the change (B, ...), in training zero for some jets."""
        if not self.training or self.probability == 0:
            return change
        kept = change.new_empty(len(change), *[1] * (change.ndim - 1)).bernoulli_(1 - self.probability)
        return change * (kept / (1 - self.probability))


class NormFormerFeedForward(nn.Module):
    """w * x + fc2(LN(GELU(fc1(LN(x))))): norms and a residual weight after NormFormer (arXiv:2110.09456)."""

    def __init__(self, config: ParticleTransformerConfig, dropout: float, hidden_dropout: float) -> None:
        super().__init__()
        width, hidden = config.width, config.feed_forward_width
        self.norm = nn.LayerNorm(width)
        self.fc1 = Linear(width, hidden)
        self.hidden_dropout = Dropout(hidden_dropout)
        self.hidden_norm = nn.LayerNorm(hidden)
        self.fc2 = Linear(hidden, width)
        self.dropout = Dropout(dropout)
        self.drop_path = DropPath(config.drop_path)
        self.residual_scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, ..., D) from x (B, ..., D)."""
        hidden = self.hidden_dropout(functional.gelu(self.fc1(self.norm(x))))
        y: Tensor = self.drop_path(self.dropout(self.fc2(self.hidden_norm(hidden))))
        return torch.addcmul(y, x, self.residual_scale)


class GatedFeedForward(nn.Module):
    """x + fc2(SiLU(gate(norm(x))) * fc1(norm(x))): SwiGLU (arXiv:2002.05202), pre-norm."""

    def __init__(self, config: ParticleTransformerConfig, dropout: float, hidden_dropout: float) -> None:
        super().__init__()
        width, hidden, style = config.width, config.feed_forward_width, STYLES[config.block]
        self.norm = style.norm(width)
        self.fc1 = Linear(width, hidden, bias=style.bias)
        self.gate = Linear(width, hidden, bias=style.bias)
        self.hidden_dropout = Dropout(hidden_dropout)
        self.fc2 = Linear(hidden, width, bias=style.bias)
        self.dropout = Dropout(dropout)
        self.drop_path = DropPath(config.drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, ..., D) from x (B, ..., D)."""
        normed = self.norm(x)
        hidden = self.hidden_dropout(functional.silu(self.gate(normed)) * self.fc1(normed))
        y: Tensor = self.drop_path(self.dropout(self.fc2(hidden)))
        return y + x


@dataclass(frozen=True)
class BlockStyle:
    """What the blocks of a kind are made of."""

    feed_forward: type[NormFormerFeedForward] | type[GatedFeedForward]
    norm: type[nn.LayerNorm] | type[nn.RMSNorm] = nn.LayerNorm
    bias: bool = True  # of the linear layers
    normformer: bool = False  # heads are scaled, and there is a norm after the attention


STYLES = {
    "normformer": BlockStyle(NormFormerFeedForward, normformer=True),
    "swiglu": BlockStyle(GatedFeedForward),
    "swiglu_rms": BlockStyle(GatedFeedForward, nn.RMSNorm, bias=False),
}


class ParticleBlock(nn.Module):
    """Self-attention, then a per-particle feed-forward."""

    def __init__(self, config: ParticleTransformerConfig) -> None:
        super().__init__()
        style = STYLES[config.block]
        self.norm = style.norm(config.width)
        self.attention = SelfAttention(
            config.width,
            config.num_heads,
            scale_heads=style.normformer,
            dropout=config.attention_dropout,
            bias=style.bias,
        )
        self.attention_norm = nn.LayerNorm(config.width) if style.normformer else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.drop_path = DropPath(config.drop_path)
        self.feed_forward = style.feed_forward(config, config.dropout, config.activation_dropout)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return (B, P, D) from x (B, P, D) and the attention bias (H, B, P, P)."""
        mixed = self.attention(self.norm(x), bias)
        x = x + self.drop_path(self.dropout(self.attention_norm(mixed)))
        y: Tensor = self.feed_forward(x)
        return y


class ClassBlock(nn.Module):
    """Class attention, then a feed-forward on the class token; no dropout, no pair bias."""

    def __init__(self, config: ParticleTransformerConfig) -> None:
        super().__init__()
        style = STYLES[config.block]
        self.norm = style.norm(config.width)
        self.attention = ClassAttention(
            config.width, config.num_heads, scale_heads=style.normformer, bias=style.bias
        )
        self.attention_norm = nn.LayerNorm(config.width) if style.normformer else nn.Identity()
        self.drop_path = DropPath(config.drop_path)
        self.feed_forward = style.feed_forward(config, dropout=0.0, hidden_dropout=0.0)

    def forward(self, token: Tensor, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return the token (B, D) from the token, the particles x (B, P, D) and bias (B, 1, 1 + P)."""
        keys = self.norm(torch.cat((token[:, None], x), dim=1))  # (B, 1 + P, D)
        # The query is the token before the norm: the published weights were trained that way.
        mixed = self.attention(token, keys, bias)
        token = token + self.drop_path(self.attention_norm(mixed))
        y: Tensor = self.feed_forward(token)
        return y
