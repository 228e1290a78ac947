"""The blocks of the Particle Transformer: attention and feed-forward layers with residual connections.

Axes: B jets, P particles of a jet, D width, H heads.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.model.attention import ClassAttention, SelfAttention
from partt.model.cpu.dropout import Dropout
from partt.model.cpu.prepacked_linear import Linear
from partt.model.particle_transformer_config import ParticleTransformerConfig


class NormFormerFeedForward(nn.Module):
    """w * x + fc2(LN(GELU(fc1(LN(x))))): norms and a residual weight after NormFormer (arXiv:2110.09456)."""

    def __init__(self, width: int, hidden: int, dropout: float, activation_dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = Linear(width, hidden)
        self.hidden_dropout = Dropout(activation_dropout)
        self.hidden_norm = nn.LayerNorm(hidden)
        self.fc2 = Linear(hidden, width)
        self.dropout = Dropout(dropout)
        self.residual_scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., D) from x (..., D)."""
        hidden = self.hidden_dropout(functional.gelu(self.fc1(self.norm(x))))
        y: Tensor = self.dropout(self.fc2(self.hidden_norm(hidden)))
        return torch.addcmul(y, x, self.residual_scale)


class GatedFeedForward(nn.Module):
    """x + fc2(SiLU(gate(LN(x))) * fc1(LN(x))): SwiGLU (arXiv:2002.05202), pre-norm."""

    def __init__(self, width: int, hidden: int, dropout: float, activation_dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = Linear(width, hidden)
        self.gate = Linear(width, hidden)
        self.hidden_dropout = Dropout(activation_dropout)
        self.fc2 = Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., D) from x (..., D)."""
        normed = self.norm(x)
        hidden = self.hidden_dropout(functional.silu(self.gate(normed)) * self.fc1(normed))
        y: Tensor = self.dropout(self.fc2(hidden))
        return y + x


FEED_FORWARD = {"normformer": NormFormerFeedForward, "swiglu": GatedFeedForward}


class ParticleBlock(nn.Module):
    """Self-attention, then a per-particle feed-forward."""

    def __init__(self, config: ParticleTransformerConfig) -> None:
        super().__init__()
        normformer = config.block == "normformer"
        self.norm = nn.LayerNorm(config.width)
        self.attention = SelfAttention(
            config.width, config.num_heads, scale_heads=normformer, dropout=config.attention_dropout
        )
        self.attention_norm = nn.LayerNorm(config.width) if normformer else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.feed_forward = FEED_FORWARD[config.block](
            config.width, config.feed_forward_width, config.dropout, config.activation_dropout
        )

    def forward(self, x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None) -> Tensor:
        """Return (B, P, D) from x (B, P, D) and the attention bias (H, B, P, P)."""
        mixed = self.attention(self.norm(x), bias, maps)
        x = x + self.dropout(self.attention_norm(mixed))
        y: Tensor = self.feed_forward(x)
        return y


class ClassBlock(nn.Module):
    """Class attention, then a feed-forward on the class token; no dropout, no pair bias."""

    def __init__(self, config: ParticleTransformerConfig) -> None:
        super().__init__()
        normformer = config.block == "normformer"
        self.norm = nn.LayerNorm(config.width)
        self.attention = ClassAttention(config.width, config.num_heads, scale_heads=normformer)
        self.attention_norm = nn.LayerNorm(config.width) if normformer else nn.Identity()
        self.feed_forward = FEED_FORWARD[config.block](config.width, config.feed_forward_width, 0.0, 0.0)

    def forward(
        self, token: Tensor, x: Tensor, bias: Tensor | None, maps: list[Tensor] | None = None
    ) -> Tensor:
        """Return the token (B, D) from the token, the particles x (B, P, D) and bias (B, 1, 1 + P)."""
        keys = self.norm(torch.cat((token[:, None], x), dim=1))  # (B, 1 + P, D)
        # The query is the token before the norm: the published weights were trained that way.
        token = token + self.attention_norm(self.attention(token, keys, bias, maps))
        y: Tensor = self.feed_forward(token)
        return y
