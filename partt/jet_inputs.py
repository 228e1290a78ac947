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
from torch.nn import functional

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
class Layout:
    """Which packed rows belong to which jet: for the device that computes, and for the host that plans.

    Sizes of tensors are numbers of the host. They come from the offsets there, which travel with the jets:
    to ask a GPU for a number is to wait until it has finished everything else.
    """

    offsets: Tensor  # (B + 1,) int64, on the device of the rows
    host_offsets: Tensor  # (B + 1,) the same on the CPU

    @classmethod
    def of_offsets(cls, offsets: Tensor) -> "Layout":
        """Return the layout of offsets (B + 1,), which are copied to the host if they are elsewhere."""
        return cls(offsets, offsets.cpu())

    @classmethod
    def of_lengths(cls, lengths: Tensor, host_lengths: Tensor) -> "Layout":
        """Return the layout of jets with these lengths (B,), known on both sides."""
        offsets = functional.pad(lengths.cumsum(0), (1, 0))
        is_same = lengths is host_lengths
        return cls(offsets, offsets if is_same else functional.pad(host_lengths.cumsum(0), (1, 0)))

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.offsets.device

    @property
    def lengths(self) -> Tensor:
        """Rows per jet (B,), on the device."""
        return self.offsets.diff()

    @property
    def host_lengths(self) -> Tensor:
        """Rows per jet (B,), on the host."""
        return self.host_offsets.diff()

    @property
    def num_jets(self) -> int:
        """B."""
        return len(self.host_offsets) - 1

    @property
    def num_rows(self) -> int:
        """T."""
        return int(self.host_offsets[-1])

    @property
    def longest(self) -> int:
        """The length of the longest jet."""
        return int(self.host_lengths.max()) if self.num_jets else 0

    def part(self, first: int, last: int) -> tuple[slice, "Layout"]:
        """Return the rows of the jets from `first` to before `last`, and the layout of these alone."""
        offsets, host = self.offsets[first : last + 1], self.host_offsets[first : last + 1]
        return slice(int(host[0]), int(host[-1])), Layout(offsets - offsets[0], host - host[0])


@dataclass(frozen=True, eq=False)
class Collection:
    """Particles of one kind, packed."""

    features: Tensor  # (T, F) standardised
    offsets: Tensor  # (B + 1,) int64
    momenta: Tensor | None = None  # (T, 4) px, py, pz, energy in GeV
    points: Tensor | None = None  # (T, K) coordinates, for nearest neighbours
    others: Mapping[str, Tensor] = field(default_factory=dict)  # (T, ...) further input groups
    host_offsets: Tensor | None = None  # (B + 1,) on the CPU, if `offsets` are elsewhere

    @property
    def layout(self) -> Layout:
        """Which rows belong to which jet; without `host_offsets`, those on a GPU are waited for."""
        if self.host_offsets is None:
            return Layout.of_offsets(self.offsets)
        return Layout(self.offsets, self.host_offsets)

    @property
    def lengths(self) -> Tensor:
        """Particles per jet (B,)."""
        return self.offsets.diff()

    @property
    def groups(self) -> dict[str, Tensor]:
        """The input groups that the collection has (T, ...), by name."""
        named = {"features": self.features, "momenta": self.momenta, "points": self.points}
        return {name: rows for name, rows in {**named, **self.others}.items() if rows is not None}

    def with_rows(
        self, change: Callable[[Tensor], Tensor], jets: Layout | Tensor | None = None
    ) -> "Collection":
        """Return the collection with every per-particle tensor changed, and a new layout or offsets if given.

        If particles are left out while they are on a GPU, a layout keeps it from being waited for.
        """
        if jets is None:
            jets = self.layout
        elif isinstance(jets, Tensor):
            jets = Layout.of_offsets(jets)
        return Collection(
            features=change(self.features),
            offsets=jets.offsets,
            momenta=None if self.momenta is None else change(self.momenta),
            points=None if self.points is None else change(self.points),
            others={name: change(rows) for name, rows in self.others.items()},
            host_offsets=None if jets.offsets is jets.host_offsets else jets.host_offsets,
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

    def relocated(self, move: Callable[[Tensor], Tensor]) -> "JetInputs":
        """Return the inputs with every tensor moved elsewhere; the host keeps the offsets that it has."""
        return JetInputs(
            {
                name: item.with_rows(move, Layout(move(item.offsets), item.layout.host_offsets))
                for name, item in self.collections.items()
            },
            {name: move(group) for name, group in self.jet_features.items()},
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
        return self.relocated(sender(target))

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


def sender(device: torch.device | str) -> Callable[[Tensor], Tensor]:
    """Return what moves tensors to a device; a copy to a GPU from page-locked memory is not waited for."""
    device = torch.device(device)
    if device.type != "cuda":
        return lambda tensor: tensor.to(device)
    return lambda tensor: (tensor.pin_memory() if tensor.is_cpu else tensor).to(device, non_blocking=True)


def _padded(collection: Collection, min_slots: int) -> PaddedCollection:
    layout = collection.layout
    slots = torch.arange(max(layout.longest, min_slots), device=layout.device)
    mask = slots < layout.lengths[:, None]
    places = (layout.offsets[:-1, None] + slots).clamp(max=max(layout.num_rows - 1, 0)).flatten()

    def pad(rows: Tensor) -> Tensor:
        if len(rows) == 0:
            return rows.new_zeros(*mask.shape, rows.shape[1])
        grid = rows.index_select(0, places).view(*mask.shape, rows.shape[1])
        return grid.masked_fill(~mask[..., None], 0)

    return PaddedCollection(
        features=pad(collection.features),
        mask=mask,
        momenta=None if collection.momenta is None else pad(collection.momenta),
        points=None if collection.points is None else pad(collection.points),
        others={name: pad(rows) for name, rows in collection.others.items()},
    )
