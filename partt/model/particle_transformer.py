"""The Particle Transformer (arXiv:2202.03772) on packed jets.

Particles of all collections are the tokens of one transformer, each collection embedded by layers of its own.

Axes: B jets, T tokens of all jets, F features, D width, H heads; inside a group of jets of similar
length: G jets, P tokens (padded; mask True = real).
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from partt.jet_inputs import InputShape, JetInputs, PaddedInputs, main_collection
from partt.model.attention import mask_to_bias
from partt.model.blocks import STYLES, ClassBlock, ParticleBlock
from partt.model.cpu.prepacked_linear import prepacked_weights
from partt.model.embeddings import LinearEmbedding, ParticleEmbedding, embed_rows
from partt.model.grouping import JetGroup, group_jets, in_order, join_rows, split_rows, take_rows
from partt.model.initialisation import draw_linear_weights, scale_by_depth
from partt.model.interleaving import InterleavedJets, interleave, side_by_side
from partt.model.network import Backbone, Embeddings
from partt.model.pair_bias import PairBias
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.trimming import trim_collections


class ParticleTransformer(Backbone):
    """Self-attention among particles, biased by pair features, then class attention (fig. 3 of the paper)."""

    config: ParticleTransformerConfig
    no_weight_decay: ClassVar[frozenset[str]] = frozenset({"class_token"})
    learned_with: ClassVar[tuple[str, ...]] = ("num_heads", "pair_last_activation", "self_pairs")

    def __init__(self, config: ParticleTransformerConfig, shape: InputShape) -> None:
        super().__init__(config, config.width, config.head)
        self.token_width = config.width
        if config.pair_widths is not None:
            self.needs_momenta = "pair features need four-momenta"
        others, self.main = self.all_collections(shape), main_collection(shape)
        self.particle_embedding = _particle_embedding(config, others.pop(self.main).num_features)
        self.other_embeddings = nn.ModuleDict(
            {
                name: _particle_embedding(config, collection.num_features)
                for name, collection in others.items()
            }
        )
        self.pair_embedding = None if config.pair_widths is None else PairBias(config, config.pair_widths)
        self.blocks = nn.ModuleList(ParticleBlock(config) for _ in range(config.num_blocks))
        self.class_token = nn.Parameter(torch.empty(config.width))
        self.class_blocks = nn.ModuleList(ClassBlock(config) for _ in range(config.num_class_blocks))
        self.norm = STYLES[config.block].norm(config.width)

    @property
    def embeddings(self) -> dict[str, nn.Module]:
        """The embedding of every collection."""
        return {self.main: self.particle_embedding, **self.other_embeddings}

    @property
    def attention_blocks(self) -> dict[str, nn.Module]:
        """The blocks, by name."""
        particles = {f"block {number + 1}": block for number, block in enumerate(self.blocks)}
        return particles | {
            f"class block {number + 1}": block for number, block in enumerate(self.class_blocks)
        }

    @property
    def pair_bias(self) -> nn.Module | None:
        """The embedding of pairs."""
        return self.pair_embedding

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the class tokens after the last block (B, D).

        On request also the particle tokens of all collections.
        """
        collections, kept = dict(inputs.collections), dict[str, Tensor]()
        if self.training and self.config.trim:
            collections, kept = trim_collections(collections)
        jets = interleave(collections)
        groups, class_tokens, tokens = [], [], []
        with prepacked_weights():
            for group, x, bias in self.embed_groups(jets):
                token, x = self.encode(x, bias, group.mask)  # noqa: PLW2901
                groups.append(group)
                class_tokens.append(token)
                tokens += [x] if with_tokens else []
        embeddings: Tensor = self.norm(in_order(class_tokens, groups))
        if not with_tokens:
            return Embeddings(embeddings)
        joined = join_rows(tokens, groups, jets.layout)
        packed = {name: jets.rows_of(name, joined) for name in collections}
        is_trimmed = {}
        for name, rows in kept.items():
            num_rows = len(inputs.collections[name].features)
            packed[name] = joined.new_zeros(num_rows, self.width).index_copy(0, rows, packed[name])
            everything = torch.ones(num_rows, dtype=torch.bool, device=rows.device)
            is_trimmed[name] = everything.index_fill_(0, rows, False)
        return Embeddings(embeddings, packed.pop(self.main), packed, is_trimmed)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        embeddings = self.embeddings
        features = {name: embeddings[name](each.features) for name, each in inputs.collections.items()}
        jets = side_by_side(inputs, features)
        bias = None
        if self.pair_embedding is not None:
            bias = self.pair_embedding.of_padded(cast("Tensor", jets.momenta), jets.mask)
        token, _ = self.encode(jets.features, bias, jets.mask)
        jet_embeddings: Tensor = self.norm(token)
        return jet_embeddings

    def encode(self, x: Tensor, bias: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return class tokens (G, D) and particle tokens (G, P, D) after all blocks.

        From embedded particles x (G, P, D), pair bias (H, G, P, P) and mask (G, P).
        """
        class_bias = None
        if mask is not None:
            hidden = mask_to_bias(mask, x.dtype)  # (G, P)
            bias = hidden[:, None] if bias is None else bias + hidden[:, None]
            class_bias = nn.functional.pad(hidden, (1, 0))[:, None]  # (G, 1, 1 + P)
        for block in self.blocks:
            x = block(x, bias)
        token = self.class_token.expand(x.shape[0], -1)
        for block in self.class_blocks:
            token = block(token, x, class_bias)
        return token, x

    def embed_groups(self, jets: InterleavedJets) -> Iterator[tuple[JetGroup, Tensor, Tensor | None]]:
        """Return groups of jets, each with embedded tokens (G, P, D) and pair bias (H, G, P, P)."""
        embeddings = self.embeddings
        x = jets.join(
            {name: embed_rows(embeddings[name], each.features) for name, each in jets.collections.items()}
        )  # (T, D)
        groups = group_jets(jets.layout)
        if self.training:  # all pairs of the batch at once, because of BatchNorm
            biases: Sequence[Tensor | None] = [None] * len(groups)
            if self.pair_embedding is not None:
                biases = self.pair_embedding.of_batch(jets.momenta, jets.layout, groups)
            yield from zip(groups, split_rows(x, groups), biases, strict=True)
            return
        momenta = None if self.pair_embedding is None else jets.momenta
        for group in groups:  # jets are independent, and a group fits the CPU's cache
            bias = None
            if self.pair_embedding is not None and momenta is not None:
                bias = self.pair_embedding.of_padded(take_rows(momenta, group.rows), group.mask)
            yield group, take_rows(x, group.rows), bias

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
