"""L-GATr-slim (arXiv:2512.17011) on packed jets: a transformer of four-vectors and scalars.

The tokens of a jet are a global one, whose scalars become the embedding of the jet, the spurions (the two
directions of the beam, and time: they say how the jet lies in the detector), and the particles of all
collections. There is no pair bias.

Axes: B jets, T particles of all jets, F features, V vector channels, S scalar channels; inside a group of
jets of similar length: G jets, K global and spurion tokens, P tokens (padded; mask True = real).
"""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from partt.jet_inputs import InputShape, JetInputs, PaddedInputs, main_collection
from partt.model.attention import mask_to_bias
from partt.model.device_numbers import numbers_like
from partt.model.grouping import group_jets, in_order, jet_of_row, join_rows, take_rows
from partt.model.interleaving import InterleavedJets, interleave, side_by_side
from partt.model.lgatr_slim_config import LGATrSlimConfig
from partt.model.lorentz_layers import LastLorentzBlock, LorentzBlock, LorentzLinear, Tokens
from partt.model.network import Backbone, Embeddings
from partt.physics.jet_frame import JetFrame, jet_frame

SPURIONS = ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, -1.0, 1.0), (0.0, 0.0, 0.0, 1.0))  # px, py, pz, E


class LGATrSlim(Backbone):
    """Lorentz-equivariant blocks; only the spurions and features of particles break the symmetry."""

    config: LGATrSlimConfig
    no_weight_decay: ClassVar[frozenset[str]] = frozenset({"embedding.vectors.weight"})  # (V, 1)
    learned_with: ClassVar[tuple[str, ...]] = ("num_heads", "spurions", "frame", "momentum_unit")

    def __init__(self, config: LGATrSlimConfig, shape: InputShape) -> None:
        super().__init__(config, config.scalar_channels, config.head)
        self.token_width = config.scalar_channels
        self.needs_momenta = "L-GATr-slim takes four-momenta"
        others, self.main = self.all_collections(shape), main_collection(shape)
        num_features = others.pop(self.main).num_features
        # The last scalar that goes in is 1 for the global token and 0 for all others.
        self.embedding = LorentzLinear(
            (1, config.vector_channels), (num_features + 1, config.scalar_channels)
        )
        self.other_embeddings = nn.ModuleDict(
            {
                name: nn.Linear(collection.num_features, config.scalar_channels)
                for name, collection in others.items()
            }
        )
        self.blocks = nn.ModuleList(LorentzBlock(config) for _ in range(config.num_blocks - 1))
        self.last_block = LastLorentzBlock(config)

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the scalars of the global token after the last block (B, S).

        On request also those of the particles of all collections.
        """
        jets = interleave(inputs.collections)
        vectors, spurions = self._vectors(jets)
        scalars = jets.join(
            {name: self._embed(name, each.features) for name, each in jets.collections.items()}
        )  # (T, S)
        groups, embeddings, tokens = group_jets(jets.layout), [], []
        for group in groups:
            embedded, rest = self.encode(
                torch.cat((spurions[group.jets], take_rows(vectors, group.rows)), dim=1),
                take_rows(scalars, group.rows),
                group.mask,
                with_tokens=with_tokens,
            )
            embeddings.append(embedded)
            tokens += [] if rest is None else [rest]
        jet_embeddings = in_order(embeddings, groups)
        if not with_tokens:
            return Embeddings(jet_embeddings)
        joined = join_rows(tokens, groups, jets.layout)
        packed = {name: jets.rows_of(name, joined) for name in jets.collections}
        return Embeddings(jet_embeddings, packed.pop(self.main), packed)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, S) of padded jets."""
        features = {name: self._embed(name, each.features) for name, each in inputs.collections.items()}
        jets = side_by_side(inputs, features)
        main = inputs.collections[self.main]
        momenta = torch.where(main.mask[..., None], cast("Tensor", main.momenta), 0.0)
        frame = jet_frame(momenta.double().sum(dim=1))
        dtype = momenta.dtype
        vectors = frame.vectors(cast("Tensor", jets.momenta)) / self.config.momentum_unit
        vectors = torch.cat((self._spurions(frame), vectors), dim=1).to(dtype)
        embeddings, _ = self.encode(vectors, jets.features, jets.mask)
        return embeddings

    def encode(
        self, vectors: Tensor, scalars: Tensor, mask: Tensor | None, *, with_tokens: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (G, S), and on request the tokens (G, P, S) of the particles.

        From vectors (G, K + P, 4), those of global token and spurions included, and embedded particles
        (G, P, S) with a mask (G, P).
        """
        num_jets, num_extra = vectors.shape[0], vectors.shape[1] - scalars.shape[1]
        bias = self.embedding.scalars.bias
        flag = self.embedding.scalars.weight[:, -1]
        extra = torch.stack((bias + flag, *[bias] * (num_extra - 1)))  # (K, S)
        scalars = torch.cat((extra.expand(num_jets, -1, -1), scalars), dim=1)
        x = Tokens(
            self.embedding.mix_vectors(vectors.permute(2, 0, 1).flatten(1)[..., None]), scalars.flatten(0, 1)
        )
        hidden = None
        if mask is not None:
            hidden = functional.pad(mask_to_bias(mask, scalars.dtype), (num_extra, 0))[:, None, None]
        for block in self.blocks:
            x = block(x, num_jets, hidden)
        embeddings = self.last_block.scalars(x, num_jets, hidden, first_only=True)
        if not with_tokens:
            return embeddings, None
        tokens = self.last_block.scalars(x, num_jets, hidden, first_only=False)
        return embeddings, tokens.view(num_jets, -1, self.width)[:, num_extra:]

    def _embed(self, name: str, features: Tensor) -> Tensor:
        """Return scalars (..., S) of the particles of a collection from their features (..., F)."""
        if name != self.main:
            scalars: Tensor = self.other_embeddings[name](features).to(features.dtype)
            return scalars
        layer = self.embedding.scalars
        return functional.linear(features, layer.weight[:, :-1], layer.bias).to(features.dtype)

    def _vectors(self, jets: InterleavedJets) -> tuple[Tensor, Tensor]:
        """Return the vectors of particles (T, 4) and those of global token and spurions (B, K, 4)."""
        main = jets.collections[self.main]
        momenta = cast("Tensor", main.momenta)
        total = momenta.new_zeros(len(main.offsets) - 1, 4, dtype=torch.float64)
        total = total.index_add(0, jet_of_row(main.offsets, len(momenta)), momenta.double())
        frame = jet_frame(total)
        rows = jet_of_row(jets.layout.offsets, jets.layout.num_rows)
        vectors = frame.take(rows).vectors(jets.momenta) / self.config.momentum_unit
        return vectors.to(momenta.dtype), self._spurions(frame).to(momenta.dtype)

    def _spurions(self, frame: JetFrame) -> Tensor:
        """Return the vectors of global token and spurions (B, K, 4), in float64; that of the former is 0."""
        zero = frame.cosh_y.new_zeros(frame.cosh_y.shape[0], 1, 4)
        if not self.config.spurions:
            return zero
        if self.config.frame == "jet":
            frame = jet_frame(torch.zeros_like(zero[:, 0]))  # spurions are as in the lab
        numbers = numbers_like(zero, [number for spurion in SPURIONS for number in spurion])
        spurions = numbers.view(-1, 4).expand(zero.shape[0], -1, -1)
        return torch.cat((zero, frame.vectors(spurions)), dim=1)
