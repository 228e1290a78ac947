"""JetBatch, which goes from data to networks and training: inputs, labels, weights and origin of jets.

Axes: B jets, C classes, R targets, T particles of a collection in all jets.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from partt.jet_inputs import Collection, JetInputs, sender

Positions = npt.NDArray[np.int64]

INLINE_BYTES = 12  # arrow keeps so few bytes in a view itself
MAX_VIEWED = 2**31 - 1  # bytes of a part; arrow's views have positions of 32 bits


@dataclass(frozen=True, eq=False)
class ParticleClasses:
    """The class of each particle of a collection, in the order of its rows in the inputs."""

    numbers: Tensor  # (T,) int64; -1: not known
    offsets: Tensor  # (B + 1,) int64

    def slice(self, first: int, last: int) -> "ParticleClasses":
        """Return those of jets from `first` to before `last`."""
        start, stop = int(self.offsets[first]), int(self.offsets[last])
        return ParticleClasses(self.numbers[start:stop], self.offsets[first : last + 1] - start)

    def relocated(self, move: Callable[[Tensor], Tensor]) -> "ParticleClasses":
        """Return them with both tensors moved elsewhere."""
        return ParticleClasses(move(self.numbers), move(self.offsets))


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

    def to(self, device: torch.device | str) -> "JetBatch":
        """Return the batch on a device; a copy to a GPU is not waited for. The origin stays on the CPU."""
        send, names = sender(device), [name for name in PER_JET if name not in ORIGIN]
        return self._map(send, self.inputs.relocated(send), lambda item: item.relocated(send), names)

    def take(self, jets: Positions) -> "JetBatch":
        """Return the given jets in the given order (on the CPU)."""
        return take_jets([self], jets)

    def slice(self, first: int, last: int) -> "JetBatch":
        """Return jets from `first` to before `last`; the tensors are views."""
        return self._map(
            lambda tensor: tensor[first:last],
            _slice_inputs(self.inputs, first, last),
            lambda item: item.slice(first, last),
            PER_JET,
        )

    def without_bad(self) -> "JetBatch":
        """Return the batch without its bad jets."""
        return self.take(np.flatnonzero(~self.bad.numpy())) if self.bad.any() else self

    def _map(
        self,
        per_jet: Callable[[Tensor], Tensor],
        inputs: JetInputs,
        per_particle: Callable[[ParticleClasses], ParticleClasses],
        names: Sequence[str],
    ) -> "JetBatch":
        values = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {
            name: per_jet(value) for name, value in values.items() if value is not None
        }
        labels = {name: per_particle(item) for name, item in self.particle_labels.items()}
        return replace(self, inputs=inputs, particle_labels=labels, **changed)


ORIGIN = ("source_file", "source_entry", "bad", "num_cut", "num_nan")  # which networks do not see
PER_JET = tuple(item.name for item in fields(JetBatch) if item.name not in {"inputs", "particle_labels"})


def take_jets(batches: Sequence[JetBatch], jets: Positions) -> JetBatch:
    """Return jets by their positions in all batches together, in the given order (on the CPU)."""
    first = batches[0]
    picked: dict[str, Any] = {
        name: _pick([getattr(batch, name) for batch in batches], jets)
        for name in PER_JET
        if getattr(first, name) is not None
    }
    labels = {}
    for name in first.particle_labels:
        parts = [batch.particle_labels[name] for batch in batches]
        gather = _Gather([part.offsets for part in parts], jets)
        labels[name] = ParticleClasses(gather([part.numbers for part in parts]), gather.offsets)
    inputs = _gathered_inputs([batch.inputs for batch in batches], jets)
    return replace(first, inputs=inputs, particle_labels=labels, **picked)


def take_inputs(inputs: JetInputs, jets: Positions) -> JetInputs:
    """Return the inputs of the given jets in the given order (on the CPU)."""
    return _gathered_inputs([inputs], jets)


def _gathered_inputs(parts: Sequence[JetInputs], jets: Positions) -> JetInputs:
    collections = {}
    for name in parts[0].collections:
        of_parts = [part.collections[name] for part in parts]
        gather = _Gather([item.offsets for item in of_parts], jets)
        collections[name] = _merged(of_parts, gather, gather.offsets)
    groups = {
        name: _pick([part.jet_features[name] for part in parts], jets) for name in parts[0].jet_features
    }
    return JetInputs(collections, groups)


class _Gather:
    """Copies the particles of given jets from several parts, once; arrow copies those of a jet at a time.

    A jet is a view (length, prefix, number of the part, start) of the bytes of its part, as arrow defines it.
    """

    def __init__(self, offsets: Sequence[Tensor], jets: Positions) -> None:
        of_parts = [part.numpy() for part in offsets]
        self._lengths = np.concatenate([np.diff(part) for part in of_parts])[jets]
        self._starts = np.concatenate([part[:-1] for part in of_parts])[jets]
        self._parts = np.repeat(np.arange(len(offsets)), [len(part) - 1 for part in of_parts])[jets]
        self.offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(self._lengths)]))  # of the result

    def __call__(self, parts: list[Tensor]) -> Tensor:
        """Return the rows of the jets, from tensors (T, ...) of each part."""
        shape = (int(self.offsets[-1]), *parts[0].shape[1:])
        row_bytes = parts[0].element_size() * math.prod(shape[1:])
        if row_bytes == 0 or shape[0] == 0:
            return parts[0].new_empty(shape)
        if row_bytes <= INLINE_BYTES or max(part.nbytes for part in parts) > MAX_VIEWED:
            return _pick(parts, self._rows([len(part) for part in parts]))
        views = np.zeros((len(self._parts), 4), dtype=np.int32)
        np.multiply(self._lengths, row_bytes, out=views[:, 0], casting="unsafe")
        views[:, 2] = self._parts
        np.multiply(self._starts, row_bytes, out=views[:, 3], casting="unsafe")
        buffers = [pa.py_buffer(array) for array in (views, *(part.contiguous().numpy() for part in parts))]
        jets = pa.Array.from_buffers(pa.binary_view(), len(views), [None, *buffers])
        copied = jets.cast(pa.large_binary()).buffers()[2]
        return torch.frombuffer(copied, dtype=parts[0].dtype).reshape(shape)

    def _rows(self, num_rows: Sequence[int]) -> Positions:
        """Return the positions of the particles in all parts together."""
        starts = self._starts + np.cumsum([0, *num_rows[:-1]])[self._parts]
        offsets = self.offsets.numpy()
        rows: Positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], self._lengths)
        return rows


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
    collections = {}
    for name in inputs[0].collections:
        parts = [item.collections[name] for item in inputs]
        collections[name] = _merged(parts, torch.cat, _join_offsets([part.offsets for part in parts]))
    groups = {
        name: torch.cat([item.jet_features[name] for item in inputs]) for name in inputs[0].jet_features
    }
    labels = {
        name: _join_classes([batch.particle_labels[name] for batch in batches])
        for name in first.particle_labels
    }
    return replace(first, inputs=JetInputs(collections, groups), particle_labels=labels, **joined)


def _pick(parts: list[Tensor], jets: Positions) -> Tensor:
    # numpy's take copies whole rows: thirty times faster here than torch's index_select
    values = parts[0] if len(parts) == 1 else torch.cat(parts)
    return torch.from_numpy(values.numpy().take(jets, axis=0))


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


def _merged(
    parts: Sequence[Collection], merge: Callable[[list[Tensor]], Tensor], offsets: Tensor
) -> Collection:
    """Return a collection whose input groups `merge` makes of those of all parts."""
    groups = [part.groups for part in parts]
    merged = {name: merge([group[name] for group in groups]) for name in groups[0]}
    return Collection(
        merged.pop("features"), offsets, merged.pop("momenta", None), merged.pop("points", None), merged
    )
