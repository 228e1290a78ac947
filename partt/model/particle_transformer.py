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
from partt.model.grouping import (
    JetGroup,
    group_jets,
    join_rows,
    pack_pairs,
    split_rows,
    square,
    take_rows,
    triangle,
)
from partt.model.initialisation import draw_linear_weights, scale_by_depth
from partt.model.network import Backbone, Embeddings
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.trimming import trim_jets
from partt.physics.pair_features import PAIR_FEATURES, pair_features


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention weights, appended by `encode` block by block."""

    particles: list[Tensor] = field(default_factory=list)  # (H, G, P, P) each
    token: list[Tensor] = field(default_factory=list)  # (G, H, 1 + P) each; the token itself is first


class ParticleTransformer(Backbone):
    """Self-attention among particles, biased by pair features, then class attention (fig. 3 of the paper)."""

    config: ParticleTransformerConfig
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
        """Return the class tokens after the last block (B, D), and on request the particle tokens (T, D)."""
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
        packed = join_rows(tokens, groups, len(jets.features))
        if kept is not None:
            packed = packed.new_zeros(len(inputs.main.features), self.width).index_copy(0, kept, packed)
        return Embeddings(embeddings, packed)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        jets = inputs.main
        token, _ = self.encode(*self.embed_group(jets.features, jets.momenta), jets.mask)
        embeddings: Tensor = self.norm(token)
        return embeddings

    def encode(
        self, x: Tensor, bias: Tensor | None, mask: Tensor | None, maps: AttentionMaps | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return class tokens (G, D) and particle tokens (G, P, D) after all blocks.

        From embedded particles x (G, P, D), pair bias (H, G, P, P) and mask (G, P).
        """
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
        """Return embedded particles (G, P, D) and pair bias (H, G, P, P) of padded jets (G, P, ...)."""
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
        """Embed group by group: in evaluation jets are independent, and a group fits the CPU's cache."""
        for group in groups:
            momenta = None if jets.momenta is None else take_rows(jets.momenta, group.rows)
            yield self.embed_group(take_rows(jets.features, group.rows), momenta)

    def _embed_batch(
        self, jets: Collection, groups: Sequence[JetGroup]
    ) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Embed all real particles and pairs of the batch at once, because of BatchNorm, then group them."""
        xs = split_rows(self.particle_embedding(jets.features), groups)
        if self.pair_embedding is None or jets.momenta is None or len(jets.momenta) == 0:
            return [(x, None) for x in xs]
        pairs = pack_pairs(jets.offsets)
        bias = self.pair_embedding(pair_features(jets.momenta, pairs.first, pairs.second))  # (H, N)
        return zip(xs, pairs.split(bias, groups), strict=True)

    def initialise(self, heads: nn.ModuleDict) -> None:
        """Draw the initial weights as the published network does; the pair embedding keeps torch's."""
        nn.init.trunc_normal_(self.class_token, std=0.02)
        own = [item for item in self.named_modules() if not item[0].startswith("pair_embedding.")]
        draw_linear_weights([*own, *heads.named_modules()])
        scale_by_depth(self.blocks)


def _particle_embedding(config: ParticleTransformerConfig, num_features: int) -> nn.Module:
    if config.embedding == "linear":
        return LinearEmbedding(num_features, config.width)
    return ParticleEmbedding(num_features, (*config.embedding_widths, config.width))


def _pair_embedding(config: ParticleTransformerConfig) -> PairEmbedding | None:
    if config.pair_widths is None:
        return None
    widths = (*config.pair_widths, config.num_heads)
    return PairEmbedding(len(PAIR_FEATURES), widths, last_activation=config.pair_last_activation)
