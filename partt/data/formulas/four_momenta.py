"""Four-momenta in formulas: made by weaver's `_p4_from_*`, computed by the vector library."""

import operator
from collections.abc import Mapping

import awkward as ak
import numpy as np

from partt.data.formulas.column_functions import (
    Function,
    Momenta,
    Value,
    aligned,
    as_awkward,
    check_axis,
    to_column,
)
from partt.data.jagged import Jagged

# Names of the vector library.
COMPONENTS = """
    px py pz energy pt eta phi mass rapidity theta p mt et x y z t rho tau mag costheta beta gamma
    E e m M Et Mt pt2 p2 mass2 m2 M2 rho2 mag2 tau2 et2 mt2
"""
DISTANCES = "deltaR deltaphi deltaeta"
# operators -> which of their operands may be four-momenta
OPERANDS_OF_MOMENTA: Mapping[Function, set[tuple[bool, ...]]] = {
    operator.add: {(True, True)},
    operator.sub: {(True, True)},
    operator.mul: {(True, False), (False, True)},
    operator.truediv: {(True, False)},
    operator.neg: {(True,)},
    operator.pos: {(True,)},
}


def momenta(*coordinates: str) -> Function:
    """Return the function that combines columns into four-momenta."""

    def call(*columns: Value) -> Momenta:
        if len(columns) != len(coordinates):
            raise TypeError(f"takes {', '.join(coordinates)}")
        if any(not isinstance(column, Jagged | np.ndarray | int | float) for column in columns):
            raise TypeError("takes columns and numbers only")
        arrays, like = aligned(columns)
        arrays = [np.asarray(array) for array in np.broadcast_arrays(*arrays)]
        if like is not None:
            arrays = [as_awkward(type(like)(array, like.offsets)) for array in arrays]
        import vector  # noqa: PLC0415 - it loads sympy, which takes a second that few formulas need

        vector.register_awkward()
        parts = {name: ak.Array(array) for name, array in zip(coordinates, arrays, strict=True)}
        return Momenta(vector.zip(parts))

    return call


def component(value: Value, name: str) -> Value:
    """Return a component of four-momenta."""
    if not isinstance(value, Momenta):
        raise TypeError(f"only what _p4_from_...() returns has .{name}")
    return to_column(getattr(value.array, name))


def distance(name: str) -> Function:
    """Return the function for a distance between four-momenta, such as deltaR."""

    def call(left: Value, right: Value) -> Value:
        if not isinstance(left, Momenta) or not isinstance(right, Momenta):
            raise TypeError("is the distance of two four-momenta")
        return to_column(getattr(left.array, name)(right.array))

    return call


def with_momenta(function: Function, on_columns: Function) -> Function:
    """Let an operator, which works on columns, add, subtract and scale four-momenta as well."""

    def call(*arguments: Value) -> Value:
        if not any(isinstance(argument, Momenta) for argument in arguments):
            return on_columns(*arguments)
        are_momenta = tuple(isinstance(argument, Momenta) for argument in arguments)
        if are_momenta not in OPERANDS_OF_MOMENTA.get(function, ()):
            raise TypeError("four-momenta can be added, subtracted and scaled; take a component, such as .pt")
        values = [
            argument.array if isinstance(argument, Momenta) else as_awkward(argument)
            for argument in arguments
        ]
        return Momenta(function(*values))

    return call


def with_sum(on_columns: Function) -> Function:
    """Let a sum over the particles of each jet, which works on columns, add four-momenta as well."""

    def call(column: Value, axis: int | None = None, **options: Value) -> Value:
        if not isinstance(column, Momenta):
            return on_columns(column, axis, **options)
        check_axis(axis)
        return Momenta(ak.sum(column.array, axis=1))

    return call
