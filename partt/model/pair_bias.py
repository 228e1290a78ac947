"""The pair bias of the attention: four-momenta of particles -> one number per head and pair.

Axes: T particles of all jets, H heads, N pairs, F pair features; inside a group of jets of similar length:
G jets, P particles (padded; mask True = real).
"""

from collections.abc import Sequence

from torch import Tensor

from partt.jet_inputs import Layout
from partt.model.blocks import STYLES
from partt.model.embeddings import PairEmbedding
from partt.model.grouping import JetGroup, jet_of_row
from partt.model.pairs import PairSet, all_pairs, diagonal, pack_pairs, square, triangle
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.physics.pair_features import PAIR_FEATURE_SETS


class PairBias(PairEmbedding):
    """Embedded features of all pairs of particles in a jet, shared by all blocks."""

    def __init__(self, config: ParticleTransformerConfig, widths: tuple[int, ...]) -> None:
        features = PAIR_FEATURE_SETS[config.pair_features]
        super().__init__(
            len(features.names),
            (*widths, config.num_heads),
            last_activation=config.pair_last_activation,
            bias=STYLES[config.block].bias,
        )
        self.features = features
        self.pairs: PairSet = "ordered"
        if features.symmetric:
            self.pairs = "symmetric" if config.self_pairs else "distinct"

    def of_batch(
        self, momenta: Tensor, layout: Layout, groups: Sequence[JetGroup]
    ) -> Sequence[Tensor | None]:
        """Return the bias (H, G, P, P) of each group, from all real pairs of packed jets at once.

        BatchNorm sees the pairs of the whole batch. momenta (T, 4).
        """
        pairs = pack_pairs(layout, self.pairs)
        if len(pairs.first) == 0:
            return [None] * len(groups)
        jets = None
        if self.features.of_jet:
            rows = jet_of_row(layout.offsets, layout.num_rows)
            jets = momenta.new_zeros(layout.num_jets, 4).index_add(0, rows, momenta)[rows]  # (T, 4)
        return pairs.split(self(self._features(momenta, pairs.first, pairs.second, jets)), groups)

    def of_padded(self, momenta: Tensor, mask: Tensor | None) -> Tensor:
        """Return the bias (H, G, P, P) of padded jets, from momenta (G, P, 4) and mask (G, P)."""
        size, device = momenta.shape[1], momenta.device
        ordered = self.pairs == "ordered"
        first, second = all_pairs(size, device) if ordered else triangle(size, device)
        jets = None
        if self.features.of_jet:
            real = momenta if mask is None else momenta * mask[..., None]
            jets = real.sum(dim=1, keepdim=True).expand_as(momenta)
        features = self._features(momenta, first, second, jets)  # (G, N, F)
        bias: Tensor = self(features.flatten(0, 1))  # (H, G N)
        bias = bias.view(-1, *features.shape[:2])
        if not ordered:
            bias = bias.index_select(2, square(size, device).flatten())  # (H, G, P P)
        bias = bias.view(*bias.shape[:2], size, size)
        return bias.masked_fill(diagonal(size, device), 0) if self.pairs == "distinct" else bias

    def _features(self, momenta: Tensor, first: Tensor, second: Tensor, jets: Tensor | None) -> Tensor:
        """Return the features (..., N, F) of pairs of particles, momenta (..., P, 4)."""
        if self.features.of_jet:
            return self.features.compute(momenta, first, second, jets)
        return self.features.compute(momenta, first, second)
