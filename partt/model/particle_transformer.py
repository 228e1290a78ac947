"""The Particle Transformer (arXiv:2202.03772) on packed jets.

Axes: B jets, T particles of all jets, F features, D width, H heads; inside a group of jets of similar
length: G jets, P particles (padded; mask True = real).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from partt.jet_inputs import Collection, InputShape, JetInputs, PaddedInputs
from partt.model.attention import mask_to_bias
from partt.model.blocks import ClassBlock, ParticleBlock
from partt.model.cpu.prepacked_linear import prepacked_weights
from partt.model.embeddings import LinearEmbedding, PairEmbedding, ParticleEmbedding
from partt.model.grouping import JetGroup, group_jets, pack_pairs, square, take_rows, triangle
from partt.model.initialisation import initialise
from partt.model.network import Backbone, Embeddings
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.trimming import trim_jets
from partt.physics.pair_features import PAIR_FEATURES, pair_features


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Filled by `encode` on request, one entry per block."""

    particles: list[Tensor] = field(default_factory=list)  # (H, G, P, P) each
    token: list[Tensor] = field(default_factory=list)  # (G, H, 1 + P) each; the token itself comes first


class ParticleTransformer(Backbone):
    """Particles and pairs of particles -> self-attention -> a class token that attends to the particles."""

    config: ParticleTransformerConfig
    has_tokens: ClassVar[bool] = True
    no_weight_decay: ClassVar[frozenset[str]] = frozenset({"class_token"})

    def __init__(self, config: ParticleTransformerConfig, shape: InputShape) -> None:
        super().__init__(config, config.width)
        if config.pair_widths is not None:
            self.needs_momenta = "pair features need four-momenta"
        collection = self.only_collection(shape)
        self.particle_embedding = _particle_embedding(config, collection.num_features)
        self.pair_embedding = _pair_embedding(config)
        self.blocks = nn.ModuleList(ParticleBlock(config) for _ in range(config.num_blocks))
        self.class_token = nn.Parameter(torch.empty(config.width))
        self.class_blocks = nn.ModuleList(ClassBlock(config) for _ in range(config.num_class_blocks))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the class tokens of jets after the last block (B, D), and the tokens of particles (T, D)."""
        jets, kept = inputs.main, None
        if self.training and self.config.trim:
            kept, offsets = trim_jets(jets.offsets)
            jets = jets.with_rows(lambda rows: rows[kept], offsets)
        groups = group_jets(jets.offsets)
        embedded = self._embed_batch(jets, groups) if self.training else self._embed_groups(jets, groups)
        class_tokens, tokens = [], []
        with prepacked_weights():
            for group, (x, bias) in zip(groups, embedded, strict=True):
                token, x = self.encode(x, bias, group.mask)  # noqa: PLW2901
                class_tokens.append(token)
                tokens += [x] if with_tokens else []
        in_order = torch.cat([group.jets for group in groups]).argsort()
        embeddings: Tensor = self.norm(torch.cat(class_tokens)[in_order])
        if not with_tokens:
            return Embeddings(embeddings)
        return Embeddings(embeddings, _ungroup(tokens, groups, kept, len(inputs.main.features)))

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        jets = inputs.main
        token, _ = self.encode(*self.embed_group(jets.features, jets.momenta), jets.mask)
        embeddings: Tensor = self.norm(token)
        return embeddings

    def encode(
        self, x: Tensor, bias: Tensor | None, mask: Tensor | None, maps: AttentionMaps | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return class tokens (G, D) and tokens (G, P, D) from tokens, bias (H, G, P, P) and mask (G, P)."""
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
        return token, x

    def embed_group(self, features: Tensor, momenta: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return tokens (G, P, D) and the pair bias (H, G, P, P) of a padded group of jets."""
        x = self.particle_embedding(features)
        if self.pair_embedding is None or momenta is None:
            return x, None
        num_particles = features.shape[1]
        pairs = pair_features(momenta, *triangle(num_particles, momenta.device))  # (G, N, 4)
        bias = self.pair_embedding(pairs.flatten(0, 1)).unflatten(1, pairs.shape[:2])  # (H, G, N)
        bias = bias.index_select(2, square(num_particles, momenta.device).flatten())  # (H, G, P P)
        return x, bias.unflatten(2, (num_particles, num_particles))

    def _embed_groups(
        self, jets: Collection, groups: Sequence[JetGroup]
    ) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Embed group by group: in evaluation jets do not affect each other, and a group fits the cache."""
        for group in groups:
            momenta = None if jets.momenta is None else take_rows(jets.momenta, group.rows)
            yield self.embed_group(take_rows(jets.features, group.rows), momenta)

    def _embed_batch(
        self, jets: Collection, groups: Sequence[JetGroup]
    ) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Embed the real particles and pairs of the whole batch, which BatchNorm must see, then group."""
        x = self.particle_embedding(jets.features)  # (T, D)
        rows = torch.cat([group.rows.flatten() for group in groups])
        xs = torch.split(take_rows(x, rows), [group.rows.numel() for group in groups])
        tokens = [x.view(*group.rows.shape, -1) for x, group in zip(xs, groups, strict=True)]
        if self.pair_embedding is None or jets.momenta is None or len(jets.momenta) == 0:
            return [(x, None) for x in tokens]
        pairs = pack_pairs(jets.offsets)
        bias = self.pair_embedding(pair_features(jets.momenta, pairs.first, pairs.second))  # (H, N)
        places = [pairs.places(group).flatten() for group in groups]
        biases = bias.index_select(1, torch.cat(places)).split([len(place) for place in places], dim=1)
        return [
            (x, bias.view(-1, len(x), x.shape[1], x.shape[1])) for x, bias in zip(tokens, biases, strict=True)
        ]

    def initialise(self, heads: nn.ModuleDict) -> None:
        """Draw the first weights as the published network does."""
        initialise(self, heads)


def _ungroup(
    tokens: Sequence[Tensor], groups: Sequence[JetGroup], kept: Tensor | None, num_rows: int
) -> Tensor:
    """Return grouped tokens (G, P, D) as packed rows (T, D); zeros for particles that were trimmed."""
    packed = tokens[0].new_zeros(num_rows, tokens[0].shape[2])
    for x, group in zip(tokens, groups, strict=True):
        rows = group.rows.flatten() if group.mask is None else group.rows[group.mask]
        values = x.flatten(0, 1) if group.mask is None else x[group.mask]
        packed = packed.index_copy(0, rows if kept is None else kept[rows], values)
    return packed


def _particle_embedding(config: ParticleTransformerConfig, num_features: int) -> nn.Module:
    if config.embedding == "linear":
        return LinearEmbedding(num_features, config.width)
    return ParticleEmbedding(num_features, (*config.embedding_widths, config.width))


def _pair_embedding(config: ParticleTransformerConfig) -> PairEmbedding | None:
    if config.pair_widths is None:
        return None
    widths = (*config.pair_widths, config.num_heads)
    return PairEmbedding(len(PAIR_FEATURES), widths, last_activation=config.pair_last_activation)
