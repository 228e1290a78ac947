"""The inputs of a network: collections of particles, and features of the jets, by name.

`JetInputs` is packed: jet i owns rows offsets[i]:offsets[i + 1] of a collection, and there is no padding.
`PaddedInputs` holds the same jets padded to equal length, for networks that are exported.

Axes: B jets, T particles of a collection in all jets, P slots of a padded jet, F features, K coordinates,
G features of a jet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

PARTICLES = "pf"  # the usual name of the main collection


@dataclass(frozen=True)
class CollectionShape:
    """Which inputs a particle of a collection has."""

    num_features: int
    has_momenta: bool = False
    num_coordinates: int = 0
    others: Mapping[str, int] = field(default_factory=dict)  # further input group -> number of variables


@dataclass(frozen=True)
class InputShape:
    """Which inputs a network gets; its layers are built for them."""

    collections: Mapping[str, CollectionShape]
    jet_features: Mapping[str, int] = field(default_factory=dict)  # group -> number of features


def main_collection(shape: InputShape) -> str:
    """Return the name of the main collection: pf, or the first one with features, or the first one.

    Inputs with features of jets only have none: an IndexError.
    """
    names = [name for name, collection in shape.collections.items() if collection.num_features]
    names = [*names, *shape.collections]
    return PARTICLES if PARTICLES in names else names[0]


@dataclass(frozen=True, eq=False)
class Collection:
    """Particles of one kind, packed."""

    features: Tensor  # (T, F) standardised
    offsets: Tensor  # (B + 1,) int64
    momenta: Tensor | None = None  # (T, 4) px, py, pz, energy in GeV
    points: Tensor | None = None  # (T, K) coordinates, for nearest neighbours
    others: Mapping[str, Tensor] = field(default_factory=dict)  # (T, ...) further input groups

    @property
    def lengths(self) -> Tensor:
        """Particles per jet (B,)."""
        return self.offsets.diff()

    @property
    def groups(self) -> dict[str, Tensor]:
        """The input groups that the collection has (T, ...), by name."""
        named = {"features": self.features, "momenta": self.momenta, "points": self.points}
        return {name: rows for name, rows in {**named, **self.others}.items() if rows is not None}

    def with_rows(self, change: Callable[[Tensor], Tensor], offsets: Tensor | None = None) -> "Collection":
        """Return the collection with every per-particle tensor changed, and new offsets if given."""
        return Collection(
            features=change(self.features),
            offsets=self.offsets if offsets is None else offsets,
            momenta=None if self.momenta is None else change(self.momenta),
            points=None if self.points is None else change(self.points),
            others={name: change(rows) for name, rows in self.others.items()},
        )


@dataclass(frozen=True, eq=False)
class JetInputs:
    """Inputs of jets: collections and jet-level input groups by name, in the order of the data config."""

    collections: Mapping[str, Collection]
    jet_features: Mapping[str, Tensor] = field(default_factory=dict)  # (B, G) each

    def __len__(self) -> int:
        """Return the number of jets."""
        for collection in self.collections.values():
            return len(collection.offsets) - 1
        return len(next(iter(self.jet_features.values()), ()))

    @property
    def main(self) -> Collection:
        """The particles of the jet (see `main_collection`)."""
        return self.collections[main_collection(self.shape)]

    @property
    def lengths(self) -> Tensor:
        """Particles per jet, over all collections (B,)."""
        lengths = [collection.lengths for collection in self.collections.values()]
        return torch.stack(lengths).sum(dim=0) if lengths else torch.zeros(len(self), dtype=torch.int64)

    @property
    def shape(self) -> InputShape:
        """Names and sizes of the inputs."""
        return InputShape(
            {
                name: CollectionShape(
                    collection.features.shape[1],
                    collection.momenta is not None,
                    0 if collection.points is None else collection.points.shape[1],
                    {part: rows.shape[1] for part, rows in collection.others.items()},
                )
                for name, collection in self.collections.items()
            },
            {name: group.shape[1] for name, group in self.jet_features.items()},
        )

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "JetInputs":
        """Return the inputs with every tensor changed, offsets included."""
        return JetInputs(
            {name: item.with_rows(change, change(item.offsets)) for name, item in self.collections.items()},
            {name: change(group) for name, group in self.jet_features.items()},
        )

    def to(self, target: torch.device | str | torch.dtype) -> "JetInputs":
        """Return the inputs on a device, or with all but the offsets converted to a floating-point type."""
        if isinstance(target, torch.dtype):
            return JetInputs(
                {
                    name: item.with_rows(lambda rows: rows.to(target))
                    for name, item in self.collections.items()
                },
                {name: group.to(target) for name, group in self.jet_features.items()},
            )
        return self.map_tensors(lambda tensor: tensor.to(target))

    def padded(self, min_slots: int = 1) -> "PaddedInputs":
        """Return the same jets padded with zeros to the longest one, and to at least `min_slots` slots."""
        return PaddedInputs(
            {name: _padded(collection, min_slots) for name, collection in self.collections.items()},
            self.jet_features,
        )


@dataclass(frozen=True, eq=False)
class PaddedCollection:
    """Particles of one kind, padded; the mask is True for real particles."""

    features: Tensor  # (B, P, F)
    mask: Tensor  # (B, P)
    momenta: Tensor | None = None  # (B, P, 4)
    points: Tensor | None = None  # (B, P, K)
    others: Mapping[str, Tensor] = field(default_factory=dict)  # (B, P, ...) further input groups


@dataclass(frozen=True, eq=False)
class PaddedInputs:
    """JetInputs, padded."""

    collections: Mapping[str, PaddedCollection]
    jet_features: Mapping[str, Tensor] = field(default_factory=dict)  # (B, G) each

    @property
    def main(self) -> PaddedCollection:
        """The particles of the jet."""
        shapes = {name: CollectionShape(item.features.shape[-1]) for name, item in self.collections.items()}
        return self.collections[main_collection(InputShape(shapes))]


def _padded(collection: Collection, min_slots: int) -> PaddedCollection:
    lengths = collection.lengths
    num_slots = max(int(lengths.max()) if len(lengths) else 0, min_slots)
    mask = torch.arange(num_slots, device=lengths.device) < lengths[:, None]

    def pad(rows: Tensor) -> Tensor:
        grid = rows.new_zeros(*mask.shape, rows.shape[1])
        grid[mask] = rows
        return grid

    return PaddedCollection(
        features=pad(collection.features),
        mask=mask,
        momenta=None if collection.momenta is None else pad(collection.momenta),
        points=None if collection.points is None else pad(collection.points),
        others={name: pad(rows) for name, rows in collection.others.items()},
    )
