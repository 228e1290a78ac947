"""The pairs of particles inside the jets of a batch.

Features that are the same for i, j and j, i are computed for one of the two only.

Axes: B jets, T particles of all jets, N pairs of all jets; G jets of a group, P its longest jet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from partt.jet_inputs import Layout
from partt.model.grouping import JetGroup

# which pairs there are: i >= j, i > j, or all
PairSet: TypeAlias = Literal["symmetric", "distinct", "ordered"]


def triangle(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return i and j of the pairs i >= j below `size`, in the order 00 10 11 20 21 22 ... (N,)."""
    pair = torch.arange(size * (size + 1) // 2, device=device)
    # Pair k is in row (sqrt(8 k + 1) - 1) / 2; torch.tril_indices cannot be exported.
    i = (((8 * pair + 1).double().sqrt() - 1) / 2).long()
    return i, pair - i * (i + 1) // 2


def square(size: int, device: torch.device) -> Tensor:
    """Return the position of the pair i, j in `triangle`'s order (P, P)."""
    slots = torch.arange(size, device=device)
    return _positions(slots[:, None], slots, "symmetric", size)


def all_pairs(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return i and j of all pairs below `size`, in the order 00 01 02 ... 10 11 12 ... (N,)."""
    pair = torch.arange(size * size, device=device)
    i = pair // size
    return i, pair - i * size  # neither repeat_interleave nor % can be exported


def diagonal(size: int, device: torch.device) -> Tensor:
    """Return the mask of self pairs (P, P)."""
    slots = torch.arange(size, device=device)
    return slots[:, None] == slots


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """All pairs inside the jets of a batch, jet after jet; in a jet i counts slowly, j fast."""

    pairs: PairSet
    first: Tensor  # (N,) row of particle i
    second: Tensor  # (N,) row of particle j
    offsets: Tensor  # (B,) first pair of every jet
    lengths: Tensor  # (B,) particles of every jet

    def places(self, group: JetGroup) -> Tensor:
        """Return the position of the pair of every two slots of a group (G, P, P); arbitrary for padding."""
        slots = torch.arange(group.rows.shape[1], device=self.offsets.device)
        lengths = self.lengths[group.jets, None, None]
        places = self.offsets[group.jets, None, None] + _positions(slots[:, None], slots, self.pairs, lengths)
        return places.clamp(max=max(len(self.first) - 1, 0))

    def split(self, values: Tensor, groups: Sequence[JetGroup]) -> list[Tensor]:
        """Return values of pairs (H, N) group by group, (H, G, P, P) each; 0 for pairs that are left out."""
        places = [self.places(group) for group in groups]
        chosen = values.index_select(1, torch.cat([place.flatten() for place in places]))
        parts = torch.split(chosen, [place.numel() for place in places], dim=1)
        shaped = [part.view(-1, *place.shape) for part, place in zip(parts, places, strict=True)]
        if self.pairs != "distinct":
            return shaped
        return [part.masked_fill(diagonal(part.shape[-1], part.device), 0) for part in shaped]


def pack_pairs(layout: Layout, pairs: PairSet = "symmetric") -> PackedPairs:
    """List the pairs inside the jets of a batch."""
    offsets, lengths = layout.offsets, layout.lengths
    jet_starts = offsets[:-1].repeat_interleave(lengths, output_size=layout.num_rows)  # (T,)
    rows = torch.arange(len(jet_starts), device=layout.device)
    # particle i of a jet has i + 1 partners j <= i, or i partners j < i, or all
    if pairs == "ordered":
        num_partners = lengths.repeat_interleave(lengths, output_size=layout.num_rows)
    else:
        num_partners = rows - jet_starts + (1 if pairs == "symmetric" else 0)
    num_all = int(_num_pairs(layout.host_lengths, pairs).sum())
    first = rows.repeat_interleave(num_partners, output_size=num_all)  # (N,)
    ends = num_partners.cumsum(0)
    pair_in_row = torch.arange(num_all, device=layout.device) - (ends - num_partners)[first]
    second = jet_starts[first] + pair_in_row
    num_pairs = _num_pairs(lengths, pairs)
    return PackedPairs(pairs, first, second, num_pairs.cumsum(0) - num_pairs, lengths)


def _num_pairs(lengths: Tensor, pairs: PairSet) -> Tensor:
    """Return the number of pairs of every jet (B,)."""
    if pairs == "ordered":
        return lengths * lengths
    return lengths * (lengths + (1 if pairs == "symmetric" else -1)) // 2


def _positions(i: Tensor, j: Tensor, pairs: PairSet, lengths: Tensor | int) -> Tensor:
    """Return where the pair i, j is in the list of pairs of a jet; arbitrary if it is left out."""
    if pairs == "ordered":
        return i * lengths + j
    high, low = torch.maximum(i, j), torch.minimum(i, j)
    return high * (high + (1 if pairs == "symmetric" else -1)) // 2 + low
