"""The Particle Transformer (arXiv:2202.03772) on packed jets.

Axes: B jets, T particles of all jets, F features, D width, H heads, C classes; inside a group of jets of
similar length: G jets, P particles (padded; mask True = real).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from partt.errors import DataError
from partt.model.attention import mask_to_bias
from partt.model.blocks import ClassBlock, ParticleBlock
from partt.model.cpu.prepacked_linear import packed_weights
from partt.model.embeddings import LinearEmbedding, PairEmbedding, ParticleEmbedding
from partt.model.grouping import Group, group_jets, pack_pairs, square, take_rows, triangle
from partt.model.initialisation import initialise
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.trimming import trim_jets
from partt.physics.pair_features import PAIR_FEATURES, pair_features


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Filled by `encode` on request, one entry per block."""

    particles: list[Tensor] = field(default_factory=list)  # (H, G, P, P) each
    token: list[Tensor] = field(default_factory=list)  # (G, H, 1 + P) each; the token itself comes first


class ParticleTransformer(nn.Module):
    """Logits of jets from their particles' features and four-momenta."""

    needs_points: ClassVar[bool] = False

    def __init__(self, config: ParticleTransformerConfig, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.needs_momenta = config.pair_widths is not None
        self.particle_embedding = _particle_embedding(config, num_features)
        self.pair_embedding = _pair_embedding(config)
        self.blocks = nn.ModuleList(ParticleBlock(config) for _ in range(config.num_blocks))
        self.class_token = nn.Parameter(torch.empty(config.width))
        self.class_blocks = nn.ModuleList(ClassBlock(config) for _ in range(config.num_class_blocks))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, num_classes)
        initialise(self)

    def forward(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from features (T, F), momenta (T, 4) in GeV and offsets (B + 1)."""
        del points  # for networks with coordinates
        logits: Tensor = self.head(self.embed_jets(particles, momenta, offsets))
        return logits

    def embed_jets(self, particles: Tensor, momenta: Tensor | None, offsets: Tensor) -> Tensor:
        """Return the jets' embeddings (B, D): what the head turns into logits."""
        if self.needs_momenta and momenta is None:
            raise DataError("pair features need four-momenta: add the input pf_vectors to the data config")
        if self.training and self.config.trim:
            kept, offsets = trim_jets(offsets)
            particles, momenta = particles[kept], momenta if momenta is None else momenta[kept]
        groups = group_jets(offsets)
        embed = self._embed_packed if self.training else self._embed_groups
        with packed_weights():
            tokens = [
                self.encode(x, bias, group.mask)
                for group, (x, bias) in zip(groups, embed(particles, momenta, offsets, groups), strict=True)
            ]
        in_order = torch.cat([group.jets for group in groups]).argsort()
        embeddings: Tensor = self.norm(torch.cat(tokens)[in_order])
        return embeddings

    def forward_dense(
        self, particles: Tensor, momenta: Tensor | None, mask: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from padded features (B, P, F), momenta (B, P, 4) and mask (B, P)."""
        del points
        logits: Tensor = self.head(self.norm(self.encode(*self.embed(particles, momenta), mask)))
        return logits

    def embed(self, particles: Tensor, momenta: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return tokens (G, P, D) and the pairs' bias (H, G, P, P) of a padded group of jets."""
        x = self.particle_embedding(particles)
        if self.pair_embedding is None or momenta is None:
            return x, None
        num_particles = particles.shape[1]
        features = pair_features(momenta, *triangle(num_particles, momenta.device))  # (G, N, 4)
        bias = self.pair_embedding(features.flatten(0, 1)).unflatten(1, features.shape[:2])  # (H, G, N)
        bias = bias.index_select(2, square(num_particles, momenta.device).flatten())  # (H, G, P P)
        return x, bias.unflatten(2, (num_particles, num_particles))

    def encode(
        self, x: Tensor, bias: Tensor | None, mask: Tensor | None, maps: AttentionMaps | None = None
    ) -> Tensor:
        """Return class tokens (G, D) from tokens x (G, P, D), bias (H, G, P, P) and mask (G, P)."""
        class_bias = None
        if mask is not None:
            hidden = mask_to_bias(mask, x.dtype)  # (G, P)
            bias = hidden[:, None] if bias is None else bias + hidden[:, None]
            class_bias = nn.functional.pad(hidden, (1, 0))[:, None]  # (G, 1, 1 + P)
        for block in self.blocks:
            x = block(x, bias, maps and maps.particles)
        token = self.class_token.expand(x.shape[0], -1)
        for block in self.class_blocks:
            token = block(token, x, class_bias, maps and maps.token)
        return token

    def _embed_groups(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, groups: Sequence[Group]
    ) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Embed group by group: in evaluation nothing couples the jets, and a group fits the cache."""
        del offsets
        for group in groups:
            rows = group.rows
            yield self.embed(
                take_rows(particles, rows), None if momenta is None else take_rows(momenta, rows)
            )

    def _embed_packed(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, groups: Sequence[Group]
    ) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Embed the real particles and pairs of the whole batch, which BatchNorm must see, then group."""
        x = self.particle_embedding(particles)  # (T, D)
        rows = torch.cat([group.rows.flatten() for group in groups])
        xs = torch.split(take_rows(x, rows), [group.rows.numel() for group in groups])
        tokens = [x.view(*group.rows.shape, -1) for x, group in zip(xs, groups, strict=True)]
        if self.pair_embedding is None or momenta is None or len(momenta) == 0:
            return [(x, None) for x in tokens]
        pairs = pack_pairs(offsets)
        bias = self.pair_embedding(pair_features(momenta, pairs.first, pairs.second))  # (H, N)
        places = [pairs.places(group).flatten() for group in groups]
        biases = bias.index_select(1, torch.cat(places)).split([len(place) for place in places], dim=1)
        return [
            (x, bias.view(-1, len(x), x.shape[1], x.shape[1])) for x, bias in zip(tokens, biases, strict=True)
        ]


def _particle_embedding(config: ParticleTransformerConfig, num_features: int) -> nn.Module:
    if config.embedding == "linear":
        return LinearEmbedding(num_features, config.width)
    return ParticleEmbedding(num_features, (*config.embedding_widths, config.width))


def _pair_embedding(config: ParticleTransformerConfig) -> PairEmbedding | None:
    if config.pair_widths is None:
        return None
    widths = (*config.pair_widths, config.num_heads)
    return PairEmbedding(len(PAIR_FEATURES), widths, last_activation=config.pair_last_activation)
