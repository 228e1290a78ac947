"""JetBatch, which goes from data to networks and training: inputs, labels, weights and origin of jets.

Axes: B jets, C classes, R targets, T particles of a collection in all jets.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from partt.data.jagged import take_rows
from partt.jet_inputs import Collection, JetInputs

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ParticleClasses:
    """The class of each particle of a collection, in the order of its rows in the inputs."""

    numbers: Tensor  # (T,) int64; -1: not known
    offsets: Tensor  # (B + 1,) int64

    def take(self, jets: Positions) -> "ParticleClasses":
        """Return those of the given jets in the given order (on the CPU)."""
        rows, offsets = take_rows(self.offsets.numpy(), jets)
        return ParticleClasses(_pick(self.numbers, rows), torch.from_numpy(offsets))

    def slice(self, first: int, last: int) -> "ParticleClasses":
        """Return those of jets from `first` to before `last`."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return ParticleClasses(self.numbers[start:stop], self.offsets[first : last + 1] - start)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "ParticleClasses":
        """Return them with both tensors changed."""
        return ParticleClasses(change(self.numbers), change(self.offsets))


@dataclass(frozen=True, eq=False)
class JetBatch:
    """Packed jets; fields have one value or row per jet, except `inputs` and `particle_labels`."""

    inputs: JetInputs
    labels: Tensor | None  # (B,) int64, position in class_names; -1 for jets without a label
    weights: Tensor  # (B,) float32, for the loss
    source_file: Tensor  # (B,) int32, position in the list of files
    source_entry: Tensor  # (B,) int64, entry in that file
    bad: Tensor  # (B,) bool: infinite feature, or NaN or infinite momentum; all its inputs are 0
    num_cut: Tensor  # (B,) int32, particles beyond the maximum length, which are cut off
    num_nan: Tensor  # (B,) int32, NaN features, which are set to 0
    targets: Tensor | None = None  # (B, R) float32; NaN: unknown
    soft_labels: Tensor | None = None  # (B, C) float32, log-probabilities from a teacher; NaN: unknown
    particle_labels: Mapping[str, ParticleClasses] = field(default_factory=dict)  # those that are learned

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.weights)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "JetBatch":
        """Return the batch with its tensors on a device."""
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "JetBatch":
        """Return the batch in page-locked memory, so that copies to a GPU overlap with computing."""
        return self._map_tensors(Tensor.pin_memory)

    def take(self, jets: Positions) -> "JetBatch":
        """Return the given jets in the given order (on the CPU)."""
        return self._map(
            lambda tensor: _pick(tensor, jets), take_inputs(self.inputs, jets), lambda item: item.take(jets)
        )

    def slice(self, first: int, last: int) -> "JetBatch":
        """Return jets from `first` to before `last`; the tensors are views."""
        return self._map(
            lambda tensor: tensor[first:last],
            _slice_inputs(self.inputs, first, last),
            lambda item: item.slice(first, last),
        )

    def without_bad(self) -> "JetBatch":
        """Return the batch without its bad jets."""
        return self.take(np.flatnonzero(~self.bad.numpy())) if self.bad.any() else self

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "JetBatch":
        return self._map(change, self.inputs.map_tensors(change), lambda item: item.map_tensors(change))

    def _map(
        self,
        per_jet: Callable[[Tensor], Tensor],
        inputs: JetInputs,
        per_particle: Callable[[ParticleClasses], ParticleClasses],
    ) -> "JetBatch":
        values = {name: getattr(self, name) for name in PER_JET}
        changed: dict[str, Any] = {
            name: per_jet(value) for name, value in values.items() if value is not None
        }
        labels = {name: per_particle(item) for name, item in self.particle_labels.items()}
        return replace(self, inputs=inputs, particle_labels=labels, **changed)


PER_JET = tuple(item.name for item in fields(JetBatch) if item.name not in {"inputs", "particle_labels"})


def take_inputs(inputs: JetInputs, jets: Positions) -> JetInputs:
    """Return the inputs of the given jets in the given order (on the CPU)."""
    collections = {}
    for name, collection in inputs.collections.items():
        rows, offsets = take_rows(collection.offsets.numpy(), jets)
        collections[name] = collection.with_rows(partial(_pick, positions=rows), torch.from_numpy(offsets))
    return JetInputs(collections, {name: _pick(group, jets) for name, group in inputs.jet_features.items()})


def concatenate(batches: Sequence[JetBatch]) -> JetBatch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    joined: dict[str, Any] = {
        name: torch.cat([getattr(batch, name) for batch in batches])
        for name in PER_JET
        if getattr(first, name) is not None
    }
    inputs = [batch.inputs for batch in batches]
    collections = {name: _join([item.collections[name] for item in inputs]) for name in inputs[0].collections}
    groups = {
        name: torch.cat([item.jet_features[name] for item in inputs]) for name in inputs[0].jet_features
    }
    labels = {
        name: _join_classes([batch.particle_labels[name] for batch in batches])
        for name in first.particle_labels
    }
    return replace(first, inputs=JetInputs(collections, groups), particle_labels=labels, **joined)


def _pick(tensor: Tensor, positions: Positions) -> Tensor:
    # numpy's take copies whole rows: thirty times faster here than torch's index_select
    return torch.from_numpy(tensor.numpy().take(positions, axis=0))


def _slice_inputs(inputs: JetInputs, first: int, last: int) -> JetInputs:
    collections = {}
    for name, collection in inputs.collections.items():
        rows = slice(int(collection.offsets[first]), int(collection.offsets[last]))
        offsets = collection.offsets[first : last + 1] - rows.start
        collections[name] = collection.with_rows(operator.itemgetter(rows), offsets)
    return JetInputs(collections, {name: group[first:last] for name, group in inputs.jet_features.items()})


def _join_classes(parts: Sequence[ParticleClasses]) -> ParticleClasses:
    offsets = _join_offsets([part.offsets for part in parts])
    return ParticleClasses(torch.cat([part.numbers for part in parts]), offsets)


def _join_offsets(parts: Sequence[Tensor]) -> Tensor:
    lengths = torch.cat([offsets.diff() for offsets in parts])
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _join(parts: Sequence[Collection]) -> Collection:
    return Collection(
        features=torch.cat([part.features for part in parts]),
        offsets=_join_offsets([part.offsets for part in parts]),
        momenta=_cat_or_none([part.momenta for part in parts]),
        points=_cat_or_none([part.points for part in parts]),
        others={name: torch.cat([part.others[name] for part in parts]) for name in parts[0].others},
    )


def _cat_or_none(tensors: Sequence[Tensor | None]) -> Tensor | None:
    present = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(present) if present else None
