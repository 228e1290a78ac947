"""Particles of several collections as one list: jet after jet, in each the collections in order.

Axes: B jets, C particles of a collection in all jets, T particles of all collections; P, Q slots of a padded
jet for one collection and for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from partt.jet_inputs import Collection, PaddedCollection, PaddedInputs
from partt.model.grouping import jet_of_row


@dataclass(frozen=True, eq=False)
class InterleavedJets:
    """Packed collections, and where the rows of each are among all rows."""

    collections: Mapping[str, Collection]
    offsets: Tensor  # (B + 1,) of all rows
    places: Mapping[str, Tensor]  # (C,) for each collection; none if there is one collection
    order: Tensor | None  # (T,) rows of the collections one after the other; None: one collection

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return rows of the collections, (C, K) each, as one list (T, K)."""
        return parts[0] if self.order is None else torch.cat(list(parts)).index_select(0, self.order)

    def rows_of(self, name: str, rows: Tensor) -> Tensor:
        """Return the rows (C, K) of a collection from all rows (T, K)."""
        return rows if self.order is None else rows.index_select(0, self.places[name])

    @property
    def momenta(self) -> Tensor:
        """Four-momenta of all particles (T, 4); every collection must have them."""
        return self.join([cast("Tensor", collection.momenta) for collection in self.collections.values()])

    @property
    def points(self) -> Tensor:
        """Coordinates of all particles (T, K); every collection must have them."""
        return self.join([cast("Tensor", collection.points) for collection in self.collections.values()])


def interleave(collections: Mapping[str, Collection]) -> InterleavedJets:
    """Return the joint list of collections."""
    all_offsets = [collection.offsets for collection in collections.values()]
    if len(all_offsets) == 1:
        return InterleavedJets(collections, all_offsets[0], {}, None)
    offsets = torch.stack(all_offsets).sum(dim=0)
    places = {}
    starts = offsets[:-1]  # (B,) of the collection in each jet
    for name, collection in collections.items():
        jets = jet_of_row(collection.offsets)
        shift = starts - collection.offsets[:-1]
        places[name] = torch.arange(len(jets), device=shift.device) + shift[jets]
        starts = starts + collection.lengths
    all_places = torch.cat(list(places.values()))
    order = torch.empty_like(all_places)
    order[all_places] = torch.arange(len(order), device=order.device)
    return InterleavedJets(collections, offsets, places, order)


def side_by_side(inputs: PaddedInputs, features: Mapping[str, Tensor]) -> PaddedCollection:
    """Return padded collections as one, (B, Q, ...), with other features (B, P, D) of each collection."""
    collections = [inputs.collections[name] for name in features]

    def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
        return None if any(part is None for part in parts) else torch.cat(cast("list[Tensor]", parts), dim=1)

    return PaddedCollection(
        torch.cat(list(features.values()), dim=1),
        torch.cat([collection.mask for collection in collections], dim=1),
        joined([collection.momenta for collection in collections]),
        joined([collection.points for collection in collections]),
    )
