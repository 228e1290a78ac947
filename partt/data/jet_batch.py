"""The record that goes from data to model: packed particles of some jets, without padding.

Axes: B jets, T particles of all jets together, F features.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from partt.data import jagged
from partt.data.jagged import Column, Jagged, take, take_rows
from partt.errors import DataError

PER_PARTICLE = ("particles", "momenta", "points")
PER_JET = ("labels", "weights", "source_file", "source_entry", "bad", "num_cut", "num_nan")


@dataclass(frozen=True, eq=False)
class JetBatch:
    """Jets, packed: jet i owns rows offsets[i]:offsets[i + 1] of the per-particle tensors."""

    particles: Tensor  # (T, F) standardised features
    momenta: Tensor | None  # (T, 4) px, py, pz, energy in GeV
    points: Tensor | None  # (T, 2) coordinates, for networks that use them
    offsets: Tensor  # (B + 1,) int64
    labels: Tensor | None  # (B,) int64, position in class_names; in prediction -1 for jets without one
    weights: Tensor  # (B,) float32, for the loss
    source_file: Tensor  # (B,) int32, position in the list of files
    source_entry: Tensor  # (B,) int64, entry in that file
    bad: Tensor  # (B,) bool: had an infinite feature or a non-finite momentum; its rows are zero
    num_cut: Tensor  # (B,) int32, particles cut off because the jet was too long
    num_nan: Tensor  # (B,) int32, features that were NaN and are now 0
    observers: Mapping[str, Column] = field(default_factory=dict)  # carried along, not for the network

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Particles per jet (B,)."""
        return self.offsets.diff()

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "JetBatch":
        """Return the batch with its tensors on a device."""
        return self._map_tensors(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "JetBatch":
        """Return the batch in page-locked memory, from where copies to a GPU overlap with its work."""
        return self._map_tensors(Tensor.pin_memory)

    def take(self, jets: npt.NDArray[np.int64]) -> "JetBatch":
        """Return the given jets in the given order (on the CPU)."""
        rows, offsets = take_rows(self.offsets.numpy(), jets)

        def pick(tensor: Tensor | None, positions: npt.NDArray[np.int64]) -> Tensor | None:
            # numpy's take copies whole rows: thirty times faster here than torch's index_select
            return None if tensor is None else torch.from_numpy(tensor.numpy().take(positions, axis=0))

        changed: dict[str, Any] = {name: pick(getattr(self, name), rows) for name in PER_PARTICLE}
        changed |= {name: pick(getattr(self, name), jets) for name in PER_JET}
        observers = {name: take(column, jets) for name, column in self.observers.items()}
        return replace(self, offsets=torch.from_numpy(offsets), observers=observers, **changed)

    def slice(self, first: int, last: int) -> "JetBatch":
        """Return jets first..last; the tensors are views."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])

        def cut(tensor: Tensor | None, start: int, stop: int) -> Tensor | None:
            return None if tensor is None else tensor[start:stop]

        changed: dict[str, Any] = {name: cut(getattr(self, name), begin, end) for name in PER_PARTICLE}
        changed |= {name: cut(getattr(self, name), first, last) for name in PER_JET}
        observers = {name: _slice_column(column, first, last) for name, column in self.observers.items()}
        return replace(self, offsets=self.offsets[first : last + 1] - begin, observers=observers, **changed)

    def without_bad(self) -> "JetBatch":
        """Return the batch without its bad jets."""
        return self.take(np.flatnonzero(~self.bad.numpy())) if self.bad.any() else self

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "JetBatch":
        changed: dict[str, Any] = {
            item.name: change(value)
            for item in fields(self)
            if isinstance(value := getattr(self, item.name), Tensor)
        }
        return replace(self, **changed)


def concatenate(batches: Sequence[JetBatch]) -> JetBatch:
    """Join batches one after another."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]

    def join(name: str) -> Tensor | None:
        return (
            None if getattr(first, name) is None else torch.cat([getattr(batch, name) for batch in batches])
        )

    changed: dict[str, Any] = {name: join(name) for name in (*PER_PARTICLE, *PER_JET)}
    observers = {
        name: _join_columns(name, [batch.observers[name] for batch in batches]) for name in first.observers
    }
    lengths = torch.cat([batch.lengths for batch in batches])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return replace(first, offsets=offsets, observers=observers, **changed)


def _slice_column(column: Column, first: int, last: int) -> Column:
    if not isinstance(column, Jagged):
        return column[first:last]
    offsets = column.offsets[first : last + 1]
    return Jagged(column.contents[offsets[0] : offsets[-1]], offsets - offsets[0])


def _join_columns(name: str, columns: Sequence[Column]) -> Column:
    try:
        return jagged.concatenate(columns)
    except TypeError as error:
        raise DataError(
            f"{name} has one value per jet in some files, and one per particle in others"
        ) from error
