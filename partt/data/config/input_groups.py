"""Input groups of a data config: which belong to a collection of particles, and which are features of jets.

The name of a group is COLLECTION_PART, like sv_features. A group has one value per jet if its length is 1 or
null and its collection has no vectors, points or mask; pf is always a collection of particles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from partt.jet_inputs import PARTICLES, CollectionShape

FEATURES, VECTORS, POINTS, MASK = "features", "vectors", "points", "mask"
OF_PARTICLES = {VECTORS, POINTS, MASK}  # parts that only a collection of particles has


@dataclass(frozen=True)
class InputVariable:
    """A feature and its standardisation: (x - subtract_by) * multiply_by, then clipped."""

    name: str
    subtract_by: float | None = None  # None: raw, neither scaled nor clipped
    multiply_by: float = 1
    clip_min: float = -5
    clip_max: float = 5
    pad_value: float = 0  # for jets without a value, in groups of jets
    to_fit: bool = False  # subtract_by and multiply_by are not fitted to the data yet


@dataclass(frozen=True)
class InputGroup:
    """The variables of one input group; jets are cut after `length` particles."""

    name: str  # as in the config: pf_features, sv_vectors, jet_features
    length: int | None
    variables: tuple[InputVariable, ...]
    wraps: bool = False  # pad_mode: wrap


@dataclass(frozen=True)
class CollectionInputs:
    """The input groups of one collection of particles."""

    name: str
    features: InputGroup  # without variables, if the config gives none
    momenta: InputGroup | None = None  # px, py, pz, energy in GeV, raw
    points: InputGroup | None = None  # coordinates
    mask: InputGroup | None = None
    others: Mapping[str, InputGroup] = field(default_factory=dict)  # further groups, by part
    mask_variable: str | None = None  # particles where it is 0 are left out; None: none are

    @property
    def length(self) -> int | None:
        """The maximum number of particles of a jet; None: no limit."""
        return self.features.length

    @property
    def groups(self) -> tuple[InputGroup, ...]:
        """The groups that give inputs: all but the mask."""
        named = (self.features, self.momenta, self.points, *self.others.values())
        return tuple(group for group in named if group is not None and group.variables)

    @property
    def shape(self) -> CollectionShape:
        """Which inputs a particle has."""
        return CollectionShape(
            len(self.features.variables),
            self.momenta is not None,
            0 if self.points is None else len(self.points.variables),
            {part: len(group.variables) for part, group in self.others.items()},
        )


def split_name(name: str) -> tuple[str, str]:
    """Return the collection and the part of the name of a group."""
    collection, _, part = name.rpartition("_")
    if collection and part:
        return collection, part
    return ("particles", name) if name in {FEATURES, *OF_PARTICLES} else (name, FEATURES)


def by_collection(lengths: Mapping[str, int | None]) -> dict[str, dict[str, str]]:
    """Return collection -> part -> name of the group, without groups of jets; `lengths` are by group."""
    found: dict[str, dict[str, str]] = {}
    for name in lengths:
        collection, part = split_name(name)
        found.setdefault(collection, {})[part] = name
    for collection, parts in found.items():
        if collection != PARTICLES and OF_PARTICLES.isdisjoint(parts):
            found[collection] = {part: name for part, name in parts.items() if lengths[name] not in {1, None}}
    return {collection: parts for collection, parts in found.items() if parts}


def collection_of(
    collection: str, groups: Mapping[str, InputGroup], mask_variable: str | None
) -> CollectionInputs:
    """Return a collection of groups by part; if none are features, another takes their place."""
    rest = dict(groups)
    momenta, points, mask = (rest.pop(part, None) for part in (VECTORS, POINTS, MASK))
    first = next((part for part in (FEATURES, *rest) if part in rest), None)
    length = next(group.length for group in groups.values())
    features = InputGroup(f"{collection}_{FEATURES}", length, ()) if first is None else rest.pop(first)
    return CollectionInputs(collection, features, momenta, points, mask, rest, mask_variable)
