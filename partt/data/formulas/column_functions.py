"""Functions of columns: elementwise on the flat contents, everything else through awkward.

All keep the number of jets, support two levels only (jets, particles), and never allocate much more memory
than their arguments take, so that a formula from an untrusted config can exhaust neither memory nor time.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import awkward as ak
import numpy as np

from partt.data.jagged import Array, Column, Jagged, Table, from_awkward, num_jets, to_awkward
from partt.errors import DataError

MAX_INTEGER = 2**63
MAX_EXPONENT = 100
MAX_VALUES_PER_JET = 4096
MOMENTUM_ATTRIBUTES = "px py pz energy pt eta phi mass rapidity theta p mt et"  # names of the vector library
TYPE_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"

# A number, a Column, an awkward array with missing values, Momenta, or a list of these.
Value: TypeAlias = Any
Function: TypeAlias = Callable[..., Value]


class PerJet(Jagged):
    """One value per jet with a second axis of length 1, so that it broadcasts: jet_pt[:, None]."""


@dataclass(frozen=True, eq=False)
class Momenta:
    """Four-momenta, as the vector library's awkward array."""

    array: ak.Array

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.array)


class LengthsDisagreeError(DataError):
    """Two arguments of an operation have different numbers of particles in a jet (or of jets)."""

    def __init__(self, positions: tuple[int, int], lengths: tuple[int, int], jet: int | None):
        super().__init__(f"{lengths[0]} and {lengths[1]} {'jets' if jet is None else 'values'}")
        self.positions, self.lengths, self.jet = positions, lengths, jet

    def naming(self, left: str, right: str) -> "LengthsDisagreeError":
        """Return the error with the names of the arguments in its message."""
        error = LengthsDisagreeError(self.positions, self.lengths, self.jet)
        error.args = (f"{left} and {right} disagree: {self}",)
        return error


# --- elementwise ---------------------------------------------------------------------------------------


def compute_numbers(function: Function, *numbers: float) -> float:
    """Compute with plain numbers; raise an error for integers that would grow without limit."""
    if function is operator.pow and abs(numbers[1]) > MAX_EXPONENT:
        raise ValueError(f"an exponent may be at most {MAX_EXPONENT}")
    result: float = function(*numbers)
    if isinstance(result, complex):
        raise ValueError("the result is not a real number")  # noqa: TRY004 - its value, not its type, is wrong
    if isinstance(result, int) and abs(result) >= MAX_INTEGER:
        raise ValueError("the number does not fit into 64 bits")
    return result


def elementwise(function: Function, num_arguments: range | None = None, keywords: str = "") -> Function:
    """Apply a numpy function to the contents of columns; values per jet are repeated for each particle.

    `num_arguments` is needed unless the function is a ufunc: numpy would write into an extra argument.
    """
    allowed = frozenset(keywords.split())
    counts = num_arguments or range(function.nin, function.nin + 1)  # type: ignore[attr-defined]

    def call(*arguments: Value, **options: Value) -> Value:
        _check_options(options, allowed)
        if len(arguments) not in counts:
            raise TypeError(f"takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}")
        refused = list | Momenta if function is clip else list | Momenta | None
        if any(isinstance(argument, refused) for argument in arguments):
            raise TypeError("takes columns and numbers only")
        if any(isinstance(argument, ak.Array) for argument in arguments):
            return to_column(function(*[_awkward(argument) for argument in arguments], **options))
        arrays, like = _aligned(arguments)
        result = function(*arrays, **options)
        if like is not None:
            return type(like)(result, like.offsets)
        # A plain number leaves float32 columns float32; numpy's own scalars would not.
        return result if np.ndim(result) else result.item()

    return call


def _aligned(arguments: tuple[Value, ...]) -> tuple[list[Value], Jagged | None]:
    """Broadcast the arguments to one length; also return a column with the structure of the result."""
    positions = [i for i, argument in enumerate(arguments) if isinstance(argument, Jagged | np.ndarray)]
    for i in positions[1:]:
        if len(arguments[i]) != len(arguments[positions[0]]):
            lengths = len(arguments[positions[0]]), len(arguments[i])
            raise LengthsDisagreeError((positions[0], i), lengths, jet=None)
    jagged = [i for i in positions if isinstance(arguments[i], Jagged)]
    if not jagged:
        return list(arguments), None
    # Values with a length-1 axis are broadcast to values per particle.
    jagged = [i for i in jagged if not isinstance(arguments[i], PerJet)] or jagged
    like: Jagged = arguments[jagged[0]]
    for i in jagged[1:]:
        if arguments[i].offsets is not like.offsets:
            _check_equal_lengths(like, arguments[i], (jagged[0], i))
    aligned = []
    for i, argument in enumerate(arguments):
        if i in jagged:
            aligned.append(argument.contents)
        elif i in positions:
            per_jet = argument.contents if isinstance(argument, Jagged) else argument
            aligned.append(np.repeat(per_jet, like.lengths))
        else:
            aligned.append(argument)
    return aligned, like


def _check_equal_lengths(left: Jagged, right: Jagged, positions: tuple[int, int]) -> None:
    different = np.flatnonzero(left.lengths != right.lengths)
    if different.size:
        jet = int(different[0])
        raise LengthsDisagreeError(positions, (int(left.lengths[jet]), int(right.lengths[jet])), jet)


def checked_operator(function: Function) -> Function:
    """Apply an operator to columns, or with limits to plain numbers."""
    on_columns = elementwise(function, range(1, 3))

    def call(*arguments: Value) -> Value:
        if all(isinstance(argument, int | float) for argument in arguments):
            return compute_numbers(function, *arguments)
        return on_columns(*arguments)

    return call


def single_number(function: Callable[..., float], name: str) -> Function:
    """Apply a function of the math module to plain numbers."""

    def call(*arguments: Value) -> float:
        if not all(isinstance(argument, int | float | np.number) for argument in arguments):
            raise TypeError(f"takes single numbers; for columns use np.{name}")
        return function(*arguments)

    return call


def clip(column: Array, a_min: float | None = None, a_max: float | None = None) -> Array:
    """Clip as numpy does; None means no limit."""
    return np.clip(column, a_min, a_max)


# --- through awkward ------------------------------------------------------------------------------------


def to_column(array: Value) -> Value:
    """Turn awkward's result into a column; with missing values it stays an awkward array."""
    if not isinstance(array, ak.Array):
        return array
    if _has_options(ak.to_layout(array)):
        if any(ak.any(ak.is_none(array, axis=axis), axis=None) for axis in range(array.ndim)):
            return array
        array = ak.drop_none(array)
    return from_awkward(array)


def _has_options(layout: Any) -> bool:
    return layout.is_option or (layout.is_list and _has_options(layout.content))


def _awkward(value: Value) -> Value:
    if isinstance(value, PerJet):
        return ak.Array(value.contents[:, np.newaxis])
    return to_awkward(value) if isinstance(value, Jagged | np.ndarray) else value


def _has_particles(value: Value) -> bool:
    return isinstance(value, Jagged) or (isinstance(value, ak.Array) and value.ndim == 2)


def _per_particle(value: Value) -> ak.Array:
    if not _has_particles(value):
        raise TypeError("takes a column with values per particle")
    return _awkward(value)


def _column(value: Value) -> Any:
    if not isinstance(value, Jagged | np.ndarray | ak.Array):
        raise TypeError("takes a column")
    return _awkward(value)


def _check_options(options: Mapping[str, Value], allowed: frozenset[str]) -> None:
    if unknown := options.keys() - allowed:
        raise TypeError(f"takes no keyword {min(unknown)!r}")
    if not all(isinstance(option, int | float | None) for option in options.values()):
        raise TypeError("keyword arguments take single numbers")


def _check_axis(axis: int | None) -> None:
    if axis not in (1, -1) or isinstance(axis, bool):
        raise ValueError("needs axis=1: a result over all jets would depend on how the files are read")


def reduction(function: Function) -> Function:
    """Apply an awkward reduction to the particles of each jet."""

    def call(column: Value, axis: int | None = None, *, keepdims: bool = False) -> Value:
        array = _per_particle(column)
        _check_axis(axis)
        result = to_column(function(array, axis=1))
        if not keepdims:
            return result
        if isinstance(result, ak.Array):
            return result[:, np.newaxis]
        return PerJet(result, np.arange(len(result) + 1))

    return call


def inside_jets(function: Function, keywords: str = "") -> Function:
    """Apply an awkward function along the particles of each jet."""
    allowed = frozenset(keywords.split())

    def call(column: Value, axis: int = 1, **options: Value) -> Value:
        _check_options(options, allowed)
        array = _per_particle(column)
        _check_axis(axis)
        return to_column(function(array, axis=1, **options))

    return call


def pad_none(column: Value, target: Value, axis: int = 1, *, clip: bool = False) -> Value:
    """Pad each jet with missing values to a minimum length; `clip` also cuts longer ones."""
    if not isinstance(target, int) or target not in range(1, MAX_VALUES_PER_JET + 1):
        raise ValueError(f"the length must be a whole number between 1 and {MAX_VALUES_PER_JET}")
    _check_axis(axis)
    return to_column(ak.pad_none(_per_particle(column), target, axis=1, clip=bool(clip)))


def fill_none(column: Value, value: float, axis: int | None = -1) -> Value:
    """Replace missing values by a number."""
    if not isinstance(value, int | float):
        raise TypeError("fills with a single number")
    array = _column(column)
    # The type of the result must not depend on whether something is missing in these jets.
    dtype = np.result_type(ak.to_numpy(ak.flatten(array, axis=None)).dtype, value)
    filled = ak.fill_none(array, value, axis=None if axis is None else array.ndim - 1)
    return to_column(ak.values_astype(filled, dtype))


def flatten(column: Value, axis: int | None = 1) -> Value:
    """Remove the axis of particles, where every jet has exactly one value."""
    result = ak.flatten(_per_particle(column), axis=axis)
    if len(result) != len(column):
        raise ValueError("changes the number of jets")
    return to_column(result)


def is_none(column: Value, axis: int = 0) -> Value:
    """Mark the missing values."""
    if axis not in (0, 1, -1):
        raise ValueError("axis must be 0 or 1")
    return to_column(ak.is_none(_column(column), axis=axis))


def drop_none(column: Value, axis: int = 1) -> Value:
    """Drop the missing values of each jet."""
    _check_axis(axis)
    return to_column(ak.drop_none(_per_particle(column), axis=1))


def values_astype(column: Value, to: str) -> Value:
    """Convert to another type of number."""
    if isinstance(column, Jagged):
        return type(column)(column.contents.astype(to), column.offsets)
    if isinstance(column, np.ndarray):
        return column.astype(to)
    return to_column(ak.values_astype(_column(column), to))


def _check_joined_size(columns: list[Value]) -> None:
    total = sum(column.contents.size if isinstance(column, Jagged) else len(column) for column in columns)
    if total > MAX_VALUES_PER_JET * max(len(columns[0]), 1):
        raise ValueError(f"more than {MAX_VALUES_PER_JET} values per jet")


def stack(columns: Value, axis: int | None = None) -> Value:
    """Combine n columns with one value per jet into one with n values per jet."""
    _check_axis(axis)
    if not isinstance(columns, list) or not all(isinstance(column, np.ndarray) for column in columns):
        raise TypeError("takes a list of columns with one value per jet")
    if len(columns) > MAX_VALUES_PER_JET:
        raise ValueError(f"more than {MAX_VALUES_PER_JET} values per jet")
    stacked = np.stack(columns, axis=1)
    return Jagged(stacked.ravel(), np.arange(len(stacked) + 1) * len(columns))


def concatenate(columns: Value, axis: int | None = None) -> Value:
    """Concatenate the particles of several columns, jet by jet."""
    _check_axis(axis)
    if not isinstance(columns, list) or not all(_has_particles(column) for column in columns):
        raise TypeError("takes a list of columns with values per particle")
    _check_joined_size([column for column in columns if isinstance(column, Jagged)] or columns)
    return to_column(ak.concatenate([_awkward(column) for column in columns], axis=1))


def length(column: Value) -> int:
    """Return the number of jets."""
    return len(_column(column))


def identity(column: Value) -> Value:
    """Return the column unchanged."""
    _column(column)
    return column


# --- four-momenta, indices, results ---------------------------------------------------------------------


def momenta(*coordinates: str) -> Function:
    """Return the function that combines columns into four-momenta."""

    def call(*columns: Value) -> Momenta:
        if len(columns) != len(coordinates):
            raise TypeError(f"takes {', '.join(coordinates)}")
        if any(not isinstance(column, Jagged | np.ndarray | int | float) for column in columns):
            raise TypeError("takes columns and numbers only")
        arrays, like = _aligned(columns)
        arrays = [np.asarray(array) for array in np.broadcast_arrays(*arrays)]
        if like is not None:
            arrays = [_awkward(type(like)(array, like.offsets)) for array in arrays]
        import vector  # noqa: PLC0415 - it loads sympy, which takes a second that few formulas need

        vector.register_awkward()
        parts = {name: ak.Array(array) for name, array in zip(coordinates, arrays, strict=True)}
        return Momenta(vector.zip(parts))

    return call


def attribute(value: Value, name: str) -> Value:
    """Return a component of four-momenta."""
    if not isinstance(value, Momenta):
        raise TypeError(f"only what _p4_from_...() returns has .{name}")
    return to_column(getattr(value.array, name))


def item(value: Value, index: Value) -> Value:
    """Index inside jets: [:, 0], [:, :5], [:, None], or with a mask or positions per particle."""
    if isinstance(index, Jagged | ak.Array):
        if not _has_particles(index):
            raise TypeError("the index must have values per particle")
        if isinstance(index, Jagged) and isinstance(value, Jagged) and index.contents.dtype == bool:
            _check_equal_lengths(value, index, (0, 1))
        # Positions with a length-1 axis (argmax with keepdims) pick inside jets too.
        inside = to_awkward(index) if isinstance(index, Jagged) else ak.from_regular(index, axis=1)
        return to_column(_per_particle(value)[inside])
    first, *rest = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Jagged | np.ndarray | ak.Array) for part in (first, *rest)):
        raise TypeError("a column must be the only index and have values per particle")
    if first != slice(None) or len(rest) > 1:
        raise ValueError("the first index runs over jets and must be `:`, as in [:, 0]")
    if not rest:
        return value
    if rest[0] is None and isinstance(value, np.ndarray):
        return PerJet(value, np.arange(len(value) + 1))
    if rest[0] is None:
        raise ValueError("[:, None] is for columns with one value per jet")
    try:
        return to_column(_per_particle(value)[:, rest[0]])
    except IndexError as error:
        raise ValueError("some jets are too short: pad them with ak.pad_none and ak.fill_none") from error


def finish(value: Value, table: Table) -> Column:
    """Return the result of a formula as a column; a single number is repeated for all jets."""
    if isinstance(value, Momenta):
        raise TypeError("gives four-momenta: take a component, such as .pt")
    if isinstance(value, ak.Array):
        axis = next(axis for axis in range(value.ndim) if ak.any(ak.is_none(value, axis=axis), axis=None))
        missing = ak.is_none(value, axis=axis)
        jets = ak.any(missing, axis=1) if axis else missing
        jet = int(np.argmax(ak.to_numpy(jets)))
        raise ValueError(f"gives no value for jet {jet} (an empty jet?): use ak.fill_none(..., value)")  # noqa: TRY004
    if isinstance(value, PerJet):
        return Jagged(value.contents, value.offsets)
    if isinstance(value, Jagged | np.ndarray):
        return value
    if isinstance(value, int | float | np.generic):
        return np.full(num_jets(table), value)
    raise TypeError("does not give a column")
