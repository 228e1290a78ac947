"""Particles of several collections as one list: jet after jet, in each the collections in order.

Axes: B jets, C particles of a collection in all jets, T particles of all collections; P, Q slots of a padded
jet for one collection and for all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from partt.jet_inputs import Collection, PaddedCollection, PaddedInputs
from partt.model.grouping import jet_of_row


@dataclass(frozen=True, eq=False)
class InterleavedJets:
    """Packed collections, and where the rows of each are among all rows."""

    collections: Sequence[Collection]
    offsets: Tensor  # (B + 1,) of all rows
    places: Sequence[Tensor]  # (C,) for each collection; none if there is one collection
    order: Tensor | None  # (T,) rows of the collections one after the other; None: one collection

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Return rows of the collections, (C, K) each, as one list (T, K)."""
        return parts[0] if self.order is None else torch.cat(list(parts)).index_select(0, self.order)

    def rows_of_main(self, rows: Tensor) -> Tensor:
        """Return the rows (C, K) of the first collection from all rows (T, K)."""
        return rows if self.order is None else rows.index_select(0, self.places[0])

    @property
    def momenta(self) -> Tensor:
        """Four-momenta of all particles (T, 4); every collection must have them."""
        return self.join([cast("Tensor", collection.momenta) for collection in self.collections])

    @property
    def points(self) -> Tensor:
        """Coordinates of all particles (T, K); every collection must have them."""
        return self.join([cast("Tensor", collection.points) for collection in self.collections])


def interleave(collections: Iterable[Collection]) -> InterleavedJets:
    """Return the joint list of collections."""
    first, *others = collections = list(collections)
    if not others:
        return InterleavedJets(collections, first.offsets, [], None)
    offsets = torch.stack([collection.offsets for collection in collections]).sum(dim=0)
    places = []
    starts = offsets[:-1]  # (B,) of the collection in each jet
    for collection in collections:
        jets = jet_of_row(collection.offsets)
        shift = starts - collection.offsets[:-1]
        places.append(torch.arange(len(jets), device=shift.device) + shift[jets])
        starts = starts + collection.lengths
    all_places = torch.cat(places)
    order = torch.empty_like(all_places)
    order[all_places] = torch.arange(len(order), device=order.device)
    return InterleavedJets(collections, offsets, places, order)


def side_by_side(inputs: PaddedInputs, features: Sequence[Tensor]) -> PaddedCollection:
    """Return padded collections as one, (B, Q, ...), with other features (B, P, D) of each collection."""
    collections = list(inputs.collections.values())

    def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
        return None if any(part is None for part in parts) else torch.cat(cast("list[Tensor]", parts), dim=1)

    return PaddedCollection(
        torch.cat(list(features), dim=1),
        torch.cat([collection.mask for collection in collections], dim=1),
        joined([collection.momenta for collection in collections]),
        joined([collection.points for collection in collections]),
    )
