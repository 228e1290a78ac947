"""Particles of several collections as one list: jet after jet, in each the collections in order.

Axes: B jets, C particles of a collection in all jets, T particles of all collections; P, Q slots of a padded
jet for one collection and for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from partt.jet_inputs import Collection, Layout, PaddedCollection, PaddedInputs
from partt.model.grouping import jet_of_row


@dataclass(frozen=True, eq=False)
class InterleavedJets:
    """Packed collections, and where the rows of each are among all rows."""

    collections: Mapping[str, Collection]
    layout: Layout  # of all rows
    places: Mapping[str, Tensor]  # (C,) for each collection; none if there is one collection
    order: Tensor | None  # (T,) rows of the collections one after the other; None: one collection

    def join(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return rows of the collections, (C, K) each, as one list (T, K)."""
        in_order = [parts[name] for name in self.collections]
        return in_order[0] if self.order is None else torch.cat(in_order).index_select(0, self.order)

    def rows_of(self, name: str, rows: Tensor) -> Tensor:
        """Return the rows (C, K) of a collection from all rows (T, K)."""
        return rows if self.order is None else rows.index_select(0, self.places[name])

    @property
    def momenta(self) -> Tensor:
        """Four-momenta of all particles (T, 4); every collection must have them."""
        return self.join({name: cast("Tensor", each.momenta) for name, each in self.collections.items()})

    @property
    def points(self) -> Tensor:
        """Coordinates of all particles (T, K); every collection must have them."""
        return self.join({name: cast("Tensor", each.points) for name, each in self.collections.items()})


def interleave(collections: Mapping[str, Collection]) -> InterleavedJets:
    """Return the joint list of collections."""
    layouts = {name: collection.layout for name, collection in collections.items()}
    if len(layouts) == 1:
        return InterleavedJets(collections, next(iter(layouts.values())), {}, None)
    joint = Layout(
        torch.stack([layout.offsets for layout in layouts.values()]).sum(dim=0),
        torch.stack([layout.host_offsets for layout in layouts.values()]).sum(dim=0),
    )
    places = {}
    starts = joint.offsets[:-1]  # (B,) of the collection in each jet
    for name, layout in layouts.items():
        shift = starts - layout.offsets[:-1]
        rows = torch.arange(layout.num_rows, device=layout.device)
        places[name] = rows + shift[jet_of_row(layout.offsets, layout.num_rows)]
        starts = starts + layout.lengths
    all_places = torch.cat(list(places.values()))
    order = torch.empty_like(all_places)
    order[all_places] = torch.arange(len(order), device=order.device)
    return InterleavedJets(collections, joint, places, order)


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
