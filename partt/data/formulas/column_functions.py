"""Functions of columns: elementwise on the flat contents, everything else through awkward.

All keep the number of jets, support two levels only (jets, particles), and never allocate much more memory
than their arguments take, so that a formula from an untrusted config can exhaust neither memory nor time.
`reshaping` has functions that change the number of values per jet, `four_momenta` those of four-momenta.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import awkward as ak
import numpy as np

from partt.data.jagged import Array, Column, Jagged, Table, from_awkward, num_jets, to_awkward
from partt.errors import DataError

MAX_INTEGER = 2**63
MAX_EXPONENT = 100
MAX_SHIFT = 63
MAX_VALUES_PER_JET = 4096
MAX_VALUES = 2**27  # of one column, or of all columns in a list
TYPE_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64"

# A number, a Column, an awkward array with missing values, Momenta, or a list of these (a first axis).
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
    if function in (operator.lshift, operator.rshift) and numbers[1] > MAX_SHIFT:
        raise ValueError(f"numbers can be shifted by at most {MAX_SHIFT} bits")
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
            return to_column(function(*[as_awkward(argument) for argument in arguments], **options))
        arrays, like = aligned(arguments)
        result = function(*arrays, **options)
        if like is not None:
            return type(like)(result, like.offsets)
        # A plain number leaves float32 columns float32; numpy's own scalars would not.
        return result if np.ndim(result) else result.item()

    return call


def aligned(arguments: tuple[Value, ...]) -> tuple[list[Value], Jagged | None]:
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
    arrays = []
    for i, argument in enumerate(arguments):
        if i in jagged:
            arrays.append(argument.contents)
        elif i in positions:
            per_jet = argument.contents if isinstance(argument, Jagged) else argument
            arrays.append(np.repeat(per_jet, like.lengths))
        else:
            arrays.append(argument)
    return arrays, like


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


def lookup(function: Function, keywords: str = "") -> Function:
    """Apply a numpy function of one column and of lists of numbers, such as the edges of bins."""
    allowed = frozenset(keywords.split())

    def call(*arguments: Value, **options: Value) -> Value:
        _check_options(options, allowed)
        columns = [argument for argument in arguments if not isinstance(argument, list)]
        lists = [argument for argument in arguments if isinstance(argument, list)]
        if len(columns) != 1 or not isinstance(columns[0], Jagged | np.ndarray):
            raise TypeError("takes one column, and a list of numbers")
        if not all(isinstance(number, int | float) for numbers in lists for number in numbers):
            raise TypeError("takes lists of numbers only")
        (column,) = columns
        contents = column.contents if isinstance(column, Jagged) else column
        result = function(
            *[np.array(argument) if isinstance(argument, list) else contents for argument in arguments],
            **options,
        )
        return type(column)(result, column.offsets) if isinstance(column, Jagged) else result

    return call


def where(condition: Value, value: Value, other: Value) -> Value:
    """Choose between two values, as awkward does."""
    return np.where(condition, *_with_wide_numbers((value, other)))


def _with_wide_numbers(values: Sequence[Value]) -> list[Value]:
    """Return values, with 64 bits for numbers that do not fit a column: numpy would turn -1 into 255."""
    types = [value.dtype for value in values if isinstance(value, np.ndarray)]
    return [
        np.int64(value) if type(value) is int and not all(_fits(value, dtype) for dtype in types) else value
        for value in values
    ]


def _fits(number: float, dtype: Any) -> bool:
    """Whether a type of whole numbers includes a whole number; True for all other types and numbers."""
    if not isinstance(number, int) or not np.issubdtype(dtype, np.integer):
        return True
    return bool(np.iinfo(dtype).min <= number <= np.iinfo(dtype).max)


def select(conditions: Value, choices: Value, default: Value = 0) -> Value:
    """Take each value from the first choice whose condition holds, as numpy does."""
    if not isinstance(conditions, list) or not isinstance(choices, list) or len(conditions) != len(choices):
        raise TypeError("takes a list of conditions and a list of as many choices")
    count = len(conditions)

    def on_contents(*arrays: Value) -> Value:
        *values, other = _with_wide_numbers(arrays[count:])
        return np.select(list(arrays[:count]), values, other)

    return elementwise(on_contents, range(2 * count + 1, 2 * count + 2))(*conditions, *choices, default)


def over_list(function: Function) -> Function:
    """Combine the columns of a list by a ufunc of two arguments: np.logical_or.reduce([a, b, c])."""
    combine = elementwise(function)

    def call(columns: Value, axis: int = 0) -> Value:
        if not isinstance(columns, list) or not columns or axis != 0:
            raise TypeError("takes a list of columns, and axis=0 only")
        return functools.reduce(combine, columns)

    return call


def hash_values(*columns: Value) -> Array:
    """Return Python's hash of the values of each jet, as weaver's _hash."""
    if not columns or not all(isinstance(column, np.ndarray) for column in columns):
        raise TypeError("takes columns with one value per jet")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([hash(row) for row in rows], dtype=np.int64)


def clip(column: Array, a_min: float | None = None, a_max: float | None = None) -> Array:
    """Clip as numpy does; None means no limit."""
    return np.clip(column, a_min, a_max)


# --- through awkward ------------------------------------------------------------------------------------


def to_column(array: Value) -> Value:
    """Turn awkward's result into a column; with missing values it stays an awkward array."""
    if not isinstance(array, ak.Array):
        return array
    layout = ak.to_layout(array)
    if _has_options(layout):
        if any(ak.any(ak.is_none(array, axis=axis), axis=None) for axis in range(array.ndim)):
            return array
        array = ak.drop_none(array)
    column = from_awkward(array)
    if isinstance(column, Jagged) and layout.is_regular and layout.size == 1:
        return PerJet(column.contents, column.offsets)
    return column


def _has_options(layout: Any) -> bool:
    return layout.is_option or (layout.is_list and _has_options(layout.content))


def as_awkward(value: Value) -> Value:
    """Turn a column into an awkward array; leave other values as they are."""
    if isinstance(value, PerJet):
        return ak.Array(value.contents[:, np.newaxis])
    return to_awkward(value) if isinstance(value, Jagged | np.ndarray) else value


def has_particles(value: Value) -> bool:
    """Whether a value has a second axis."""
    if isinstance(value, Momenta):
        return bool(value.array.ndim == 2)
    return isinstance(value, Jagged) or (isinstance(value, ak.Array) and value.ndim == 2)


def per_particle(value: Value) -> ak.Array:
    """Turn a column with values per particle into an awkward array."""
    if not has_particles(value):
        raise TypeError("takes a column with values per particle")
    return value.array if isinstance(value, Momenta) else as_awkward(value)


def any_column(value: Value) -> Any:
    """Turn a column, per jet or per particle, into an awkward array."""
    if not isinstance(value, Jagged | np.ndarray | ak.Array):
        raise TypeError("takes a column")
    return as_awkward(value)


def _check_options(options: Mapping[str, Value], allowed: frozenset[str]) -> None:
    if unknown := options.keys() - allowed:
        raise TypeError(f"takes no keyword {min(unknown)!r}")
    # Text was checked with the syntax: a type of numbers, or a side.
    if not all(isinstance(option, int | float | str | None) for option in options.values()):
        raise TypeError("keyword arguments take single numbers")


def check_axis(axis: int | None) -> None:
    """Raise an error unless the axis is that of the particles."""
    if axis not in (1, -1) or isinstance(axis, bool):
        raise ValueError("needs axis=1: a result over all jets would depend on how the files are read")


def reduction(function: Function) -> Function:
    """Apply an awkward reduction to the particles of each jet, or numpy's to a list of columns (axis=0)."""
    allowed = frozenset(inspect.signature(function).parameters) & {"mask_identity", "initial", "ddof"}

    def call(column: Value, axis: int | None = None, *, keepdims: bool = False, **options: Value) -> Value:
        _check_options(options, allowed)
        if isinstance(column, list):
            return _reduced_list(function.__name__, column, axis)
        array = per_particle(column)
        check_axis(axis)
        result = to_column(function(array, axis=1, **options))
        if not keepdims:
            return result
        if isinstance(result, ak.Array):
            return result[:, np.newaxis]
        return PerJet(result, np.arange(len(result) + 1))

    return call


def _reduced_list(name: str, columns: list[Value], axis: int | None) -> Value:
    function = getattr(np, name, None)
    if axis != 0 or isinstance(axis, bool) or function is None or not columns:
        raise ValueError(
            "reduces a list of columns with axis=0 only; otherwise write np.stack([...], axis=1)"
        )

    def on_contents(*arrays: Value) -> Value:
        return function(np.stack(np.broadcast_arrays(*arrays)), axis=0)

    return elementwise(on_contents, range(len(columns), len(columns) + 1))(*columns)


def inside_jets(function: Function, keywords: str = "") -> Function:
    """Apply an awkward function along the particles of each jet."""
    allowed = frozenset(keywords.split())

    def call(column: Value, axis: int = 1, **options: Value) -> Value:
        _check_options(options, allowed)
        array = per_particle(column)
        check_axis(axis)
        return to_column(function(array, axis=1, **options))

    return call


def fill_none(column: Value, value: float, axis: int | None = -1) -> Value:
    """Replace missing values by a number."""
    if not isinstance(value, int | float):
        raise TypeError("fills with a single number")
    array = any_column(column)
    # The type of the result must not depend on whether something is missing in these jets.
    dtype = ak.to_numpy(ak.flatten(array, axis=None)).dtype
    dtype = np.result_type(dtype, value if _fits(value, dtype) else np.int64)
    filled = ak.fill_none(array, value, axis=None if axis is None else array.ndim - 1)
    return to_column(ak.values_astype(filled, dtype))


def is_none(column: Value, axis: int = 0) -> Value:
    """Mark the missing values."""
    if axis not in (0, 1, -1):
        raise ValueError("axis must be 0 or 1")
    return to_column(ak.is_none(any_column(column), axis=axis))


def mask(column: Value, mask: Value) -> Value:
    """Make values missing where the mask is not set."""
    return to_column(ak.mask(any_column(column), any_column(mask)))


def nan_to_none(column: Value) -> Value:
    """Make NaN missing."""
    return to_column(ak.nan_to_none(any_column(column)))


def drop_none(column: Value, axis: int = 1) -> Value:
    """Drop the missing values of each jet."""
    check_axis(axis)
    return to_column(ak.drop_none(per_particle(column), axis=1))


def values_astype(column: Value, to: str) -> Value:
    """Convert to another type of number; plain numbers stay as they are."""
    if isinstance(column, int | float):
        return column
    if isinstance(column, Jagged):
        return type(column)(column.contents.astype(to), column.offsets)
    if isinstance(column, np.ndarray):
        return column.astype(to)
    return to_column(ak.values_astype(any_column(column), to))


def length(column: Value) -> int:
    """Return the number of jets."""
    return len(any_column(column))


def check_size(num_values: int, num_jets: int) -> None:
    """Raise an error if a column would have too many values."""
    if num_values > MAX_VALUES_PER_JET * max(num_jets, 1):
        raise ValueError(f"more than {MAX_VALUES_PER_JET} values per jet")
    if num_values > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES} values at once")


def num_values(value: Value) -> int:
    """Return the number of values in memory."""
    if isinstance(value, Jagged):
        return value.contents.size
    array = value.array if isinstance(value, Momenta) else value
    if isinstance(array, ak.Array):
        return int(array.nbytes) // 8
    return array.size if isinstance(array, np.ndarray) else 0


def identity(column: Value) -> Value:
    """Return the column, or the list of columns, unchanged."""
    for value in column if isinstance(column, list) else [column]:
        any_column(value)
    return column


# --- indices, results ---------------------------------------------------------------------------------------


def item(value: Value, index: Value) -> Value:
    """Index inside jets: [:, 0], [:, :5], [:, None], or with a mask or positions per particle."""
    if isinstance(value, list):
        if not isinstance(index, int) or isinstance(index, bool) or not -len(value) <= index < len(value):
            raise ValueError("the index of a list must be a number within it")
        return value[index]
    finished = Momenta if isinstance(value, Momenta) else to_column
    if isinstance(index, Jagged | ak.Array):
        if not has_particles(index):
            raise TypeError("the index must have values per particle")
        if isinstance(index, Jagged) and isinstance(value, Jagged) and index.contents.dtype == bool:
            _check_equal_lengths(value, index, (0, 1))
        # Positions with a length-1 axis (argmax with keepdims) pick inside jets too.
        inside = to_awkward(index) if isinstance(index, Jagged) else ak.from_regular(index, axis=1)
        return finished(per_particle(value)[inside])
    second = _second_index(index, len(value))
    if second == slice(None):
        return value
    if second is None and isinstance(value, np.ndarray):
        return PerJet(value, np.arange(len(value) + 1))
    if second is None:
        raise ValueError("[:, None] is for columns with one value per jet")
    try:
        return finished(per_particle(value)[:, second])
    except IndexError as error:
        raise ValueError("some jets are too short: pad them with ak.pad_none and ak.fill_none") from error


def _second_index(index: Value, num_jets: int) -> Value:
    """Return the index inside jets of [:, index]; for [:] it is `:` as well."""
    first, *rest = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, Jagged | np.ndarray | ak.Array) for part in (first, *rest)):
        raise TypeError("a column must be the only index and have values per particle")
    if first not in (slice(None), ...) or len(rest) > 1:
        raise ValueError("the first index runs over jets and must be `:`, as in [:, 0]")
    second = rest[0] if rest else slice(None)
    if isinstance(second, list):
        if not all(isinstance(position, int) for position in second):
            raise TypeError("positions in a list must be whole numbers")
        check_size(len(second) * num_jets, num_jets)
    return second


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
    if isinstance(value, Jagged | np.ndarray):
        return value
    if isinstance(value, int | float | np.generic):
        return np.full(num_jets(table), value)
    raise TypeError("does not give a column")
