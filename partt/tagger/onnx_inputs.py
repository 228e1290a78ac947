"""Inputs of exported taggers: their names and axes, and jets in that form.

raw: branches, (B,) values per jet or (B, P) values per particle, and how many particles each jet has.
standardised: weaver-core's interface, one input for each input group: (B, F, P), or (B, F, 1), (B, F) or (B,)
for groups with one value per jet.

Axes: N jets, B jets of a batch, P slots for the particles of a jet, F features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from partt.data.config.data_config import CollectionInputs, DataConfig, InputGroup, branches_to_read
from partt.data.jagged import Array, Column, Jagged, Table, take_rows
from partt.data.jet_batch import JetBatch, Positions, take_inputs
from partt.data.packing import pack
from partt.data.variables import Variables, renamed_branch
from partt.errors import ConfigError, DataError
from partt.jet_inputs import PaddedCollection

InputKind: TypeAlias = Literal["raw", "standardised"]
Axes: TypeAlias = dict[str, tuple[str | int, ...]]  # of every input; a name stands for a size that varies
Floats: TypeAlias = npt.NDArray[np.float32]
Feed: TypeAlias = dict[str, Floats]

JETS = "jets"
ONLY_PARTICLES = "particles"  # the axis of particles, if there is one


def input_axes(inputs: InputKind, config: DataConfig, jets: Table, factors: Sequence[str] = ()) -> Axes:
    """Return the axes of every input, in the order of the inputs.

    `jets`: branches of some jets; `factors`: variables that predictions are multiplied by, in raw files.
    """
    return _standardised_axes(config) if inputs == "standardised" else _raw_axes(config, jets, factors)


def count_name(axis: str) -> str:
    """Return the raw input that says how many particles of an axis each jet has."""
    return f"num_{axis}"


def mask_name(config: DataConfig, collection: str) -> str:
    """Return the standardised input that marks the real particles of a collection."""
    mask = config.collections[collection].mask
    return f"{collection}_mask" if mask is None else mask.name


def raw_branches(config: DataConfig, factors: Sequence[str] = ()) -> dict[str, str]:
    """Return the branches that the inputs need -> their names in the files, which are the input names."""
    needed = branches_to_read(config, [*config.input_names, *factors])
    return {name: renamed_branch(config, name) for name in sorted(needed)}


def particle_axes(config: DataConfig, jets: Table, factors: Sequence[str] = ()) -> dict[str, str]:
    """Return the axis of each branch with values per particle; its name is that of the collection it is for.

    Branches of a collection share an axis if they have as many values in all of the jets.
    """
    collections = {
        name: [variable.name for group in (*item.groups, item.mask) if group for variable in group.variables]
        for name, item in config.collections.items()
    }
    of_jets = [[variable.name for variable in group.variables] for group in config.jet_groups.values()]
    of_jets += [[name] for name in factors]
    axes: dict[str, str] = {}
    for collection, names in [*collections.items(), *((None, names) for names in of_jets)]:
        together: list[str] = []
        for branch in _jagged_branches(config, names, jets):
            if branch not in axes:
                same = (other for other in together if _same_lengths(jets[other], jets[branch]))
                new = branch if collection is None or collection in axes.values() else collection
                axes[branch] = next((axes[other] for other in same), new)
            together.append(branch)
    return axes if len(set(axes.values())) > 1 else dict.fromkeys(axes, ONLY_PARTICLES)


def _jagged_branches(config: DataConfig, names: list[str], jets: Table) -> list[str]:
    """Return the branches with values per particle that variables need, those of the first variable first."""
    branches = [branch for name in names for branch in sorted(branches_to_read(config, [name]))]
    return [branch for branch in dict.fromkeys(branches) if isinstance(jets[branch], Jagged)]


def _same_lengths(one: Column, other: Column) -> bool:
    return (
        isinstance(one, Jagged) and isinstance(other, Jagged) and np.array_equal(one.offsets, other.offsets)
    )


def _raw_axes(config: DataConfig, jets: Table, factors: Sequence[str]) -> Axes:
    axis_of = particle_axes(config, jets, factors)
    axes: Axes = {count_name(axis): (JETS,) for axis in axis_of.values()}
    for name, branch in raw_branches(config, factors).items():
        if branch in axes:
            raise ConfigError(f"a branch is called {branch}, like an input of exported files; rename it")
        axes[branch] = (JETS, axis_of[name]) if name in axis_of else (JETS,)
    return axes


def _standardised_axes(config: DataConfig) -> Axes:
    axes: Axes = {}
    for name in config.group_order:
        if name in config.jet_groups:
            axes[name] = _jet_axes(config.jet_groups[name])
    for name, collection in config.collections.items():
        axis = name if len(config.collections) > 1 else ONLY_PARTICLES
        axes |= {group.name: (JETS, len(group.variables), axis) for group in collection.groups}
        axes[mask_name(config, name)] = (JETS, 1, axis)
    order = [name for name in config.group_order if name in axes]
    return {name: axes[name] for name in dict.fromkeys([*order, *axes])}


def _jet_axes(group: InputGroup) -> tuple[str | int, ...]:
    if group.length is not None:
        return JETS, len(group.variables), 1
    return (JETS, len(group.variables)) if len(group.variables) > 1 else (JETS,)


# --- feeding jets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RawJets:
    """Raw branches as inputs."""

    columns: Mapping[str, Column]  # by name of the input
    axis_of: Mapping[str, str]  # inputs with values per particle -> their axis
    lengths_of: Mapping[str, npt.NDArray[np.int64]]  # axis -> particles per jet (N,)
    num_jets: int

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Particles per jet, of all axes (N,)."""
        return sum(self.lengths_of.values(), np.zeros(self.num_jets, dtype=np.int64))

    @property
    def bad(self) -> npt.NDArray[np.bool_]:
        """None (N,): the file itself gives NaN."""
        return np.zeros(self.num_jets, dtype=bool)

    def feed(self, batch: Positions) -> Feed:
        """Return the inputs of some jets: (B, P) values per particle, (B,) values and particles per jet."""
        longest = {axis: int(lengths[batch].max(initial=0)) for axis, lengths in self.lengths_of.items()}
        feed = {
            name: _padded(column, batch, longest[self.axis_of[name]])
            if isinstance(column, Jagged)
            else _floats(column[batch])
            for name, column in self.columns.items()
        }
        return feed | {count_name(axis): _floats(number[batch]) for axis, number in self.lengths_of.items()}


@dataclass(frozen=True, eq=False)
class StandardisedJets:
    """Standardised inputs, as in weaver-core."""

    config: DataConfig
    jets: JetBatch

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Particles per jet (N,)."""
        lengths: npt.NDArray[np.int64] = self.jets.inputs.lengths.numpy()
        return lengths

    @property
    def bad(self) -> npt.NDArray[np.bool_]:
        """Jets with inputs that are NaN or infinite (N,)."""
        bad: npt.NDArray[np.bool_] = self.jets.bad.numpy()
        return bad

    def feed(self, batch: Positions) -> Feed:
        """Return the inputs of some jets."""
        inputs = take_inputs(self.jets.inputs, batch).padded(min_slots=0)
        feed: Feed = {}
        for name, collection in inputs.collections.items():
            feed[mask_name(self.config, name)] = _floats(collection.mask[:, None].numpy())
            for group, values in _tensors(self.config.collections[name], collection).items():
                feed[group] = _floats(values.transpose(1, 2).numpy())
        for name, values in inputs.jet_features.items():
            shape = [size for size in _jet_axes(self.config.jet_groups[name]) if size != JETS]
            feed[name] = _floats(values.numpy().reshape(len(batch), *map(int, shape)))
        return feed


def _tensors(groups: CollectionInputs, particles: PaddedCollection) -> dict[str, Tensor]:
    """Return the tensors (B, P, F) of a collection by the names of their input groups."""
    others = [(group, particles.others[part]) for part, group in groups.others.items()]
    named = [
        (groups.features, particles.features),
        (groups.momenta, particles.momenta),
        (groups.points, particles.points),
        *others,
    ]
    return {
        group.name: values
        for group, values in named
        if group is not None and group.variables and values is not None
    }


def feeder(
    inputs: InputKind, config: DataConfig, variables: Variables, axes: Axes, factors: Sequence[str] = ()
) -> RawJets | StandardisedJets:
    """Return jets in the form that a file with these inputs takes."""
    if inputs == "standardised":
        return StandardisedJets(config, pack(config, variables))
    columns, axis_of = {}, {}
    for name, branch in raw_branches(config, factors).items():
        if branch not in axes:
            continue  # not needed by the graph
        columns[branch] = column = variables.branches[name]
        per_particle = len(axes[branch]) == 2
        if isinstance(column, Jagged) != per_particle:
            raise DataError(
                f"{variables.url}: {name} has one value per {'jet' if per_particle else 'particle'}; the "
                f"exported tagger needs one per {'particle' if per_particle else 'jet'}"
            )
        if per_particle:
            axis_of[branch] = str(axes[branch][1])
    lengths_of = {
        axis: _common_lengths(
            {name: columns[name] for name, own in axis_of.items() if own == axis}, variables
        )
        for axis in axis_of.values()
    }
    return RawJets(columns, axis_of, lengths_of, variables.num_jets)


def session_axes(session: Any) -> Axes:
    """Return the axes of the inputs of a session of onnxruntime."""
    return {item.name: tuple(item.shape) for item in session.get_inputs()}


def _common_lengths(columns: Mapping[str, Column], variables: Variables) -> npt.NDArray[np.int64]:
    """Return how many values the branches of one axis have in each jet (N,)."""
    jagged = {name: column for name, column in columns.items() if isinstance(column, Jagged)}
    (first, reference), *others = jagged.items()
    for name, column in others:
        wrong = np.flatnonzero(column.lengths != reference.lengths)
        if len(wrong):
            jet = int(wrong[0])
            raise DataError(
                f"{variables.url}, entry {variables.entries[jet]}: {name} has {int(column.lengths[jet])} "
                f"values, but {first} has {int(reference.lengths[jet])}; all branches of a jet's particles "
                "need one value per particle"
            )
    return reference.lengths


def _padded(column: Jagged, batch: Positions, num_slots: int) -> Floats:
    rows, offsets = take_rows(column.offsets, batch)
    padded = np.zeros((len(batch), num_slots), dtype=np.float32)
    padded[np.arange(num_slots) < np.diff(offsets)[:, None]] = column.contents[rows]
    return padded


def _floats(values: Array) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float32)
