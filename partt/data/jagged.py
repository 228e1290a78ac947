"""Columns: one value per jet, or contents and offsets for values per particle.

Axes: N jets, T particles of all jets together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import awkward as ak
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Jagged:
    """Values per particle: jet i owns contents[offsets[i]:offsets[i + 1]]; offsets[0] is 0."""

    contents: Array  # (T,)
    offsets: npt.NDArray[np.int64]  # (N + 1,)

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Particles per jet (N,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Nested:
    """Values per particle of events with jets: event i owns `jets` offsets[i] to offsets[i + 1]."""

    jets: Jagged
    offsets: npt.NDArray[np.int64]  # (events + 1,)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.offsets) - 1


def jagged_fault(contents: Array, offsets: Array) -> str | None:
    """Say why foreign contents and offsets are not a jagged column; None if they are."""
    if contents.ndim != 1 or offsets.ndim != 1:
        return "contents and offsets must have one dimension"
    if offsets.dtype != np.int64:
        return f"offsets are {offsets.dtype}, not int64"
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(contents) or (np.diff(offsets) < 0).any():
        return f"offsets must increase from 0 to the number of values, {len(contents)}"
    return None


Column: TypeAlias = Array | Jagged
AnyColumn: TypeAlias = Column | Nested
Table: TypeAlias = Mapping[str, Column]


def from_awkward(array: ak.Array) -> Column:
    """Turn an awkward array of numbers, flat or with one jagged level, into a column without copying.

    A fixed second dimension becomes a jagged level of equal lengths. Other arrays are a TypeError.
    """
    layout = ak.to_layout(array)
    if layout.is_numpy and layout.purelist_depth == 1:
        return np.asarray(layout.data)
    layout = ak.to_layout(ak.to_packed(ak.from_regular(array, axis=None)))
    if layout.is_numpy:
        return np.asarray(layout.data)
    if layout.is_list and layout.content.is_numpy and layout.purelist_depth == 2:
        offsets = np.asarray(layout.offsets).astype(np.int64, copy=False)
        return Jagged(np.asarray(layout.content.data)[offsets[0] : offsets[-1]], offsets - offsets[0])
    raise TypeError(f"not numbers with at most one jagged level: {array.type}")


def from_deep_awkward(array: ak.Array) -> AnyColumn:
    """Turn an awkward array of numbers with at most two jagged levels into a column without copying."""
    if array.ndim < 3:
        return from_awkward(array)
    layout = ak.to_layout(ak.to_packed(ak.from_regular(array, axis=None)))
    if not layout.is_list:
        raise TypeError(f"not numbers with at most two jagged levels: {array.type}")
    offsets = np.asarray(layout.offsets).astype(np.int64, copy=False)
    jets = from_awkward(ak.Array(layout.content[offsets[0] : offsets[-1]]))
    if not isinstance(jets, Jagged):
        raise TypeError(f"not numbers with at most two jagged levels: {array.type}")
    return Nested(jets, offsets - offsets[0])


def to_awkward(column: Column) -> ak.Array:
    """Turn a column into an awkward array without copying."""
    if not isinstance(column, Jagged):
        return ak.Array(column)
    offsets = ak.index.Index64(column.offsets)
    return ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(column.contents)))


def take(column: Column, jets: npt.NDArray[np.int64]) -> Column:
    """Return the given jets of a column, in the given order; a jet may be taken more than once."""
    if not isinstance(column, Jagged):
        return column[jets]
    rows, offsets = take_rows(column.offsets, jets)
    return Jagged(column.contents[rows], offsets)


def take_rows(
    offsets: npt.NDArray[np.int64], jets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the particle rows of the given jets, and the offsets of the result."""
    lengths = offsets[jets + 1] - offsets[jets]
    new_offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.arange(new_offsets[-1]) + np.repeat(offsets[jets] - new_offsets[:-1], lengths)
    return rows, new_offsets


def concatenate(columns: Sequence[Column]) -> Column:
    """Concatenate columns; mixing values per jet with values per particle is a TypeError."""
    jagged = [column for column in columns if isinstance(column, Jagged)]
    flat = [column for column in columns if not isinstance(column, Jagged)]
    if jagged and flat:
        raise TypeError("cannot concatenate values per jet and values per particle")
    if flat:
        return np.concatenate(flat)
    lengths = np.concatenate([column.lengths for column in jagged])
    contents = np.concatenate([column.contents for column in jagged])
    return Jagged(contents, np.concatenate([[0], np.cumsum(lengths)]))


def num_jets(table: Table) -> int:
    """Return the number of jets of a table; a lazy table gives it without computing a column."""
    known: int | None = getattr(table, "num_jets", None)
    return len(next(iter(table.values()), ())) if known is None else known
