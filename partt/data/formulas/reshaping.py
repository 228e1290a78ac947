"""Functions of columns that change the number of values per jet, with limits of what they may allocate."""

from typing import TypeAlias

import awkward as ak
import numpy as np
import numpy.typing as npt

from partt.data.formulas.column_functions import (
    MAX_VALUES,
    MAX_VALUES_PER_JET,
    PerJet,
    Value,
    any_column,
    as_awkward,
    check_axis,
    elementwise,
    has_particles,
    per_particle,
    to_column,
)
from partt.data.jagged import Array, Jagged

Lengths: TypeAlias = npt.NDArray[np.int64]


def check_size(num_values: int, num_jets: int) -> None:
    """Raise an error if a column would have too many values."""
    if num_values > MAX_VALUES_PER_JET * max(num_jets, 1):
        raise ValueError(f"more than {MAX_VALUES_PER_JET} values per jet")
    if num_values > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values at once")


def _check_length(length: Value, num_jets: int) -> None:
    if not isinstance(length, int) or length not in range(1, MAX_VALUES_PER_JET + 1):
        raise ValueError(f"the length must be a whole number between 1 and {MAX_VALUES_PER_JET}")
    check_size(length * num_jets, num_jets)


def _grid(values: Array) -> Jagged:
    """Turn an array (N, k) into a column; a second axis of length 1 broadcasts."""
    num_jets, length = values.shape
    return (PerJet if length == 1 else Jagged)(values.ravel(), np.arange(num_jets + 1) * length)


def _one_value_each(column: Value) -> Array:
    """Return the values of a column (N,) that has one value in each jet."""
    if not isinstance(column, Jagged) or (column.lengths != 1).any():
        raise ValueError("needs exactly one value in each jet")
    return column.contents


# --- padding ----------------------------------------------------------------------------------------------


def pad_none(column: Value, target: Value, axis: int = 1, *, clip: bool = False) -> Value:
    """Pad each jet with missing values to a minimum length; `clip` also cuts longer ones."""
    check_axis(axis)
    array = per_particle(column)
    _check_length(target, len(array))
    return to_column(ak.pad_none(array, target, axis=1, clip=bool(clip)))


def pad(column: Value, maxlen: Value, value: float = 0, dtype: str = "float32") -> Jagged:
    """Cut or pad each jet to a length, as weaver's _pad."""
    if not isinstance(value, int | float):
        raise TypeError("pads with a single number")
    column = _jagged(column)
    _check_length(maxlen, len(column))
    grid = np.full((len(column), maxlen), value, dtype=dtype)
    kept = np.minimum(column.lengths, maxlen)
    starts = np.concatenate([[0], np.cumsum(kept)])
    rows = np.arange(starts[-1]) + np.repeat(column.offsets[:-1] - starts[:-1], kept)
    grid[np.arange(maxlen) < kept[:, np.newaxis]] = column.contents[rows]
    return _grid(grid)


def repeat_pad(column: Value, maxlen: Value, dtype: str = "float32") -> Jagged:
    """Cut each jet to a length, or repeat its values up to it, as weaver's _repeat_pad."""
    column = _jagged(column)
    _check_length(maxlen, len(column))
    grid = np.zeros((len(column), maxlen), dtype=dtype)
    filled = np.flatnonzero(column.lengths)
    positions = np.arange(maxlen) % column.lengths[filled, np.newaxis]
    grid[filled] = column.contents[column.offsets[filled, np.newaxis] + positions]
    return _grid(grid)


def _jagged(column: Value) -> Jagged:
    if isinstance(column, np.ndarray):
        return Jagged(column, np.arange(len(column) + 1))
    if not isinstance(column, Jagged):
        raise TypeError("takes a column")
    return column


# --- joining ----------------------------------------------------------------------------------------------


def stack(columns: Value, axis: int = 0) -> Value:
    """Combine n columns with one value per jet into one with n values per jet.

    With axis=0 they remain a list, which only a reduction with axis=0 can use.
    """
    if not isinstance(columns, list) or not all(isinstance(column, np.ndarray) for column in columns):
        raise TypeError("takes a list of columns with one value per jet")
    if axis == 0 and not isinstance(axis, bool):
        return columns
    check_axis(axis)
    check_size(len(columns) * len(columns[0]), len(columns[0]))
    return _grid(np.stack(columns, axis=1))


def stack_values(columns: Value, axis: int = 1) -> Value:
    """Combine columns as weaver's _stack and numpy's column_stack."""
    return stack(columns, axis)


def concatenate(columns: Value, axis: int | None = None) -> Value:
    """Concatenate the particles of several columns, jet by jet."""
    check_axis(axis)
    if not isinstance(columns, list) or not all(has_particles(column) for column in columns):
        raise TypeError("takes a list of columns with values per particle")
    arrays = [as_awkward(column) for column in columns]
    check_size(sum(int(ak.count(array, axis=None)) for array in arrays), len(arrays[0]))
    return to_column(ak.concatenate(arrays, axis=1))


def broadcast_arrays(*columns: Value) -> Value:
    """Repeat values per jet for each particle, so that all columns have the same lengths."""
    first = elementwise(lambda *arrays: np.broadcast_arrays(*arrays)[0].copy(), range(1, 33))
    return [first(*columns[i:], *columns[:i]) for i in range(len(columns))]


# --- adding and removing the second axis ------------------------------------------------------------------


def singletons(column: Value, axis: int = 0) -> Value:
    """Turn each value per jet into a list of one value, and missing ones into empty lists."""
    if axis != 0 or has_particles(column):
        raise ValueError("takes a column with one value per jet")
    return to_column(ak.singletons(any_column(column)))


def expand_dims(column: Value, axis: Value = None) -> PerJet:
    """Add a second axis of length 1."""
    check_axis(axis)
    if not isinstance(column, np.ndarray):
        raise TypeError("takes a column with one value per jet")
    return PerJet(column, np.arange(len(column) + 1))


def unflatten(column: Value, counts: Value, axis: int = 0) -> PerJet:
    """Add a second axis of length 1: the only counts that keep the number of jets."""
    if counts != 1 or axis != 0:
        raise ValueError("changes the number of jets: the counts must be 1")
    return expand_dims(column, 1)


def squeeze(column: Value, axis: int | None = None) -> Value:
    """Remove the second axis if its length is 1 in all jets."""
    if axis is not None:
        check_axis(axis)
        return _one_value_each(column)
    if isinstance(column, np.ndarray | int | float):
        return column
    column = to_regular(column)
    return column.contents if isinstance(column, PerJet) else column


def flatten(column: Value, axis: int | None = 1) -> Value:
    """Remove the axis of particles, where every jet has exactly one value."""
    if axis is not None:
        check_axis(axis)
    elif isinstance(column, np.ndarray):
        return column
    if isinstance(column, Jagged) and (column.lengths != 1).any():
        raise ValueError("changes the number of jets")
    return to_column(ak.flatten(per_particle(column), axis=axis))


def ravel(column: Value) -> Value:
    """Remove all axes but the first, where every jet has exactly one value."""
    return flatten(column, axis=None)


def reshape(column: Value, *shape: Value) -> Value:
    """Add or remove a second axis of length 1: reshape(x, (-1, 1)), reshape(x, -1)."""
    lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], list) else list(shape)
    if lengths == [-1]:
        return ravel(column)
    if lengths != [-1, 1]:
        raise ValueError("the shape must be (-1, 1) or -1: others change the number of jets")
    return column if isinstance(column, PerJet) else expand_dims(column, 1)


def to_regular(column: Value, axis: int = 1) -> Value:
    """Check that all jets have the same number of values; a second axis of length 1 broadcasts."""
    check_axis(axis)
    if not isinstance(column, Jagged):
        raise TypeError("takes a column with values per particle")
    if (column.lengths != column.lengths[:1]).any():
        raise ValueError("the jets have different numbers of values")
    length = int(column.lengths[0]) if len(column) else 1
    return _grid(column.contents.reshape(len(column), length))


def from_regular(column: Value, axis: int = 1) -> Value:
    """Make the second axis one of particles: it does not broadcast."""
    check_axis(axis)
    if not isinstance(column, Jagged):
        raise TypeError("takes a column with values per particle")
    return Jagged(column.contents, column.offsets)
