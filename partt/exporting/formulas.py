"""Formulas of data configs in torch, for tracing: a table of functions for `evaluate`.

A column is a tensor: (N,) values per jet, (N, P) values per particle in padded slots. numpy's rules hold:
numbers leave float32 as it is, integers that meet fractions become float64.

Axes: N jets, P slots.
"""

import ast
import functools
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from partt.data.formulas.column_functions import TYPE_NAMES, Function, Value
from partt.data.formulas.expressions import Formula, evaluate
from partt.data.formulas.functions import NEW_NAMES, NUMPY_FUNCTIONS, PYTHON_OPERATORS, FunctionTable
from partt.errors import ConfigError
from partt.exporting.torch_momenta import (
    TorchMomenta,
    by_component,
    distances,
    from_cartesian,
    from_energy,
    from_mass,
    hypot,
    momenta,
    with_momenta,
    with_sum,
)

Columns: TypeAlias = Mapping[str, Tensor]


class TorchVariables(dict[str, Tensor]):
    """Branches, and new variables, computed on demand."""

    def __init__(
        self,
        branches: Columns,
        formulas: Mapping[str, Formula],
        axis_of: Mapping[str, str],
        masks: Mapping[str, Tensor],
    ) -> None:
        """`axis_of`: columns with values per particle -> axis; `masks`: axis -> real particles (N, P)."""
        super().__init__(branches)
        self.formulas = formulas
        self.axis_of = dict(axis_of)
        self.functions = {axis: torch_functions(mask) for axis, mask in masks.items()}
        first = next(iter(branches.values()))
        one_value = torch.ones_like(first if first.ndim == 1 else first[:, 0], dtype=torch.bool)
        self.functions_of_jets = torch_functions(one_value[:, None])

    def __missing__(self, name: str) -> Tensor:
        """Compute a variable; a formula that cannot be computed in torch or traced is a ConfigError."""
        if name not in self.formulas:
            raise ConfigError(f"{name} depends on the name of a file (file_magic), so it cannot be exported")
        formula = self.formulas[name]
        table: Any = self  # tensors instead of numpy columns
        try:
            axis = self._axis_of(formula)
            functions = self.functions_of_jets if axis is None else self.functions[axis]
            column: Any = evaluate(formula, table, functions)
        except ConfigError as error:
            raise ConfigError(
                f"{name}: {formula.text!r} cannot be exported: {error}; --inputs standardised leaves "
                "formulas to the program that runs the file"
            ) from error
        self[name] = column
        if axis is not None and self[name].ndim == 2:
            self.axis_of[name] = axis
        return self[name]

    def _axis_of(self, formula: Formula) -> str | None:
        """Return the axis of the particles that a formula is about; None: it has no values per particle."""
        used = sorted(formula.names & (self.keys() | self.formulas.keys()))
        axes = {self.axis_of[name] for name in used if self[name].ndim == 2 and name in self.axis_of}
        if len(axes) > 1:
            raise ConfigError(f"it combines particles of {' and '.join(sorted(axes))}")
        return next(iter(axes), None)


# --- element by element ---------------------------------------------------------------------------------


def _floor_divide(x: Tensor, y: Tensor) -> Tensor:
    quotient = torch.true_divide(x, y) if x.is_floating_point() else x.double() / y.double()
    return quotient.floor().to(x.dtype)


def _in_float32(function: Function) -> Function:
    """Compute in float32, for functions that onnxruntime has in no other precision."""

    def call(*values: Tensor) -> Tensor:
        result: Tensor = function(*(value.float() for value in values)).to(values[0].dtype)
        return result

    return call


def _nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    limits = torch.finfo(x.dtype)
    x = torch.where(x == math.inf, limits.max if posinf is None else posinf, x)
    x = torch.where(x == -math.inf, limits.min if neginf is None else neginf, x)
    return torch.where(x.isnan(), nan, x)


def _is_close(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8) -> Tensor:
    return ((x - y).abs() <= atol + rtol * y.abs()) | (x == y)


def _clip(x: Tensor, a_min: Tensor | None = None, a_max: Tensor | None = None) -> Tensor:
    x = x if a_min is None else torch.maximum(x, torch.as_tensor(a_min, dtype=x.dtype))
    return x if a_max is None else torch.minimum(x, torch.as_tensor(a_max, dtype=x.dtype))


# for all types of numbers
_ANY: dict[str, Function] = {
    **dict.fromkeys(("abs", "absolute", "fabs"), torch.abs),
    **{name: getattr(torch, name) for name in ("sign", "square", "maximum", "minimum", "where")},
    **{
        name: getattr(torch, name) for name in ("greater", "greater_equal", "less", "less_equal", "not_equal")
    },
    **{name: getattr(torch, name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
    **{name: getattr(torch, name) for name in ("zeros_like", "ones_like", "full_like")},
    "equal": torch.eq,
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "negative": torch.neg,
    "positive": torch.positive,
    "clip": _clip,
}
_ARCS = ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")
# integers are converted to float64
_FRACTIONS: dict[str, Function] = {
    **{name: getattr(torch, name) for name in ("sqrt", "exp", "log", "log2", "log10", "log1p", "expm1")},
    **{name: getattr(torch, name) for name in ("sin", "cos", "tanh")},
    **{name: _in_float32(getattr(torch, name)) for name in ("tan", "sinh", "cosh")},
    **{f"arc{name}": _in_float32(getattr(torch, f"a{name}")) for name in _ARCS},
    **{name: getattr(torch, name) for name in ("reciprocal", "floor", "ceil", "trunc", "isnan", "isinf")},
    **dict.fromkeys(("deg2rad", "radians"), torch.deg2rad),
    **dict.fromkeys(("rad2deg", "degrees"), torch.rad2deg),
    **dict.fromkeys(("divide", "true_divide"), torch.true_divide),
    "isfinite": torch.isfinite,
    "hypot": hypot,
    "rint": torch.round,
    "round": torch.round,
    "nan_to_num": _nan_to_num,
    "isclose": _is_close,
}
_OPERATORS: dict[type[ast.AST], Function] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.FloorDiv: _floor_divide,
    ast.Mod: torch.remainder,
    ast.Pow: torch.pow,
    ast.BitAnd: torch.bitwise_and,
    ast.BitOr: torch.bitwise_or,
    ast.BitXor: torch.bitwise_xor,
    ast.USub: torch.neg,
    ast.UAdd: torch.positive,
    ast.Invert: torch.bitwise_not,
    ast.Lt: torch.lt,
    ast.LtE: torch.le,
    ast.Gt: torch.gt,
    ast.GtE: torch.ge,
    ast.Eq: torch.eq,
    ast.NotEq: torch.ne,
}


def elementwise(function: Function, on_numbers: Function, *, fractions: bool = False) -> Function:
    """Apply a function of tensors to columns and numbers; `on_numbers` is used for numbers alone."""

    def call(*arguments: Value, **options: Value) -> Value:
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        if not tensors:
            return on_numbers(*arguments, **options)
        if any(isinstance(argument, list | TorchMomenta) for argument in arguments):
            raise TypeError("takes columns and numbers only")
        fractional = fractions or any(
            argument.is_floating_point() if isinstance(argument, Tensor) else isinstance(argument, float)
            for argument in arguments
        )
        counts = function not in _TAKE_NUMBERS and any(type(argument) is int for argument in arguments)
        per_particle = any(tensor.ndim == 2 for tensor in tensors)

        def aligned(argument: Value) -> Value:
            if not isinstance(argument, Tensor):
                return argument
            if counts and argument.dtype == torch.bool:
                argument = argument.long()  # (x > 0) * 2 is a number
            if fractional and not argument.is_floating_point() and function is not torch.where:
                argument = argument.double()
            return argument[:, None] if per_particle and argument.ndim == 1 else argument

        values = [aligned(argument) for argument in arguments]
        like = next(value for value in values if isinstance(value, Tensor))
        if function not in _TAKE_NUMBERS:
            values = [
                torch.tensor(value, dtype=like.dtype) if isinstance(value, int | float) else value
                for value in values
            ]
        if "dtype" in options:
            options["dtype"] = getattr(torch, options["dtype"])
        return function(*values, **options)

    return call


def _over_list(combine: Function) -> Function:
    def call(columns: list[Value], axis: int = 0) -> Value:
        if axis != 0:
            raise ValueError("takes axis=0 only")
        return functools.reduce(combine, columns)

    return call


def _is_in(column: Value, numbers: list[float]) -> Tensor:
    result: Tensor = (column[..., None] == torch.tensor(numbers)).any(dim=-1)
    return result


def _digitize(column: Value, edges: list[float], *, right: bool = False) -> Tensor:
    steps = torch.tensor(edges, dtype=column.dtype if column.is_floating_point() else torch.float64)
    below: Tensor = column[..., None] <= steps if right else column[..., None] < steps
    return (~below).sum(dim=-1)  # NaN is above all edges, as in numpy


def _search_sorted(edges: list[float], column: Value, side: str = "left") -> Tensor:
    return _digitize(column, edges, right=side == "left")


_TAKE_NUMBERS = (torch.where, torch.full_like, torch.round, _clip, _nan_to_num)
_OVER_LISTS = ("logical_and", "logical_or", "logical_xor", "add", "multiply", "maximum", "minimum")


# --- along the particles of a jet -----------------------------------------------------------------------


def reductions(mask: Tensor) -> dict[str, Function]:
    """Return functions that reduce (N, P) to (N,) over the real particles of the mask (N, P)."""

    def filled(x: Tensor, value: float) -> Tensor:
        return torch.where(mask, x, torch.tensor(value, dtype=x.dtype))

    def number(x: Tensor) -> Tensor:
        return mask.sum(dim=1).to(x.dtype if x.is_floating_point() else torch.int64)

    def mean(x: Tensor) -> Tensor:
        x = x if x.is_floating_point() else x.double()
        return filled(x, 0).sum(dim=1) / number(x)

    def variance(x: Tensor) -> Tensor:
        return mean((x - mean(x)[:, None]).square())

    def extreme(x: Tensor, *, largest: bool) -> Tensor:
        limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        return filled(x, limits.min).amax(dim=1) if largest else filled(x, limits.max).amin(dim=1)

    def total(x: Tensor) -> Tensor:
        return filled(x if x.is_floating_point() else x.long(), 0).sum(dim=1)

    return {
        "sum": total,
        "mean": mean,
        "var": variance,
        "std": lambda x: variance(x).sqrt(),
        "min": lambda x: extreme(x, largest=False),
        "max": lambda x: extreme(x, largest=True),
        "any": lambda x: total(x != 0) > 0,
        "all": lambda x: total(x == 0) == 0,
        "count_nonzero": lambda x: total(x != 0),
        "num": lambda _: mask.sum(dim=1),
        "count": lambda _: mask.sum(dim=1),
    }


def _reduction(function: Function) -> Function:
    def call(column: Value, axis: int | None = 1, *, keepdims: bool = False) -> Tensor:
        if not isinstance(column, Tensor) or column.ndim != 2:
            raise TypeError("takes a column with values per particle")
        if axis not in (1, -1):
            raise ValueError("needs axis=1")
        result: Tensor = function(column)
        return result[:, None] if keepdims else result

    return call


def _sorting(mask: Tensor) -> dict[str, Function]:
    """Return functions that sort the real particles of the mask (N, P), in front of the padding."""

    def sorted_(column: Value, ascending: Value) -> tuple[Tensor, Tensor]:
        if not isinstance(column, Tensor) or column.ndim != 2:
            raise TypeError("takes a column with values per particle")
        column = column if column.is_floating_point() else column.double()
        filled = torch.where(mask, column, torch.tensor(math.inf if ascending else -math.inf))
        values, order = torch.sort(filled, dim=1, descending=not ascending)
        return torch.where(mask, values, torch.zeros_like(values)), order

    def sort(column: Value, axis: int = 1, *, ascending: Value = True, stable: Value = True) -> Tensor:
        del axis, stable
        return sorted_(column, ascending)[0].to(column.dtype)

    def argsort(column: Value, axis: int = 1, *, ascending: Value = True, stable: Value = True) -> Tensor:
        del axis, stable
        return sorted_(column, ascending)[1]

    def local_index(column: Value, axis: int = 1) -> Tensor:
        del column, axis
        return mask.cumsum(dim=1) - 1

    return {"sort": sort, "argsort": argsort, "local_index": local_index}


# --- axes of length 1 -------------------------------------------------------------------------------------


def _expanded(column: Value, *_: Value, **__: Value) -> Tensor:
    """Add an axis of length 1: expand_dims, singletons, unflatten(x, 1), reshape(x, (-1, 1))."""
    if not isinstance(column, Tensor) or column.ndim != 1:
        raise TypeError("takes a column with one value per jet in an exported file")
    return column[:, None]


def _squeezed(column: Value, *_: Value, **__: Value) -> Tensor:
    if not isinstance(column, Tensor) or (column.ndim == 2 and column.shape[1] != 1):
        raise TypeError("takes a column with one value per jet in an exported file")
    return column[:, 0] if column.ndim == 2 else column


# --- indices, results ---------------------------------------------------------------------


def _attribute(value: Value, name: str) -> Tensor:
    if not isinstance(value, TorchMomenta):
        raise TypeError(f"only what _p4_from_...() returns has .{name}")
    return value.component(name)


def _item(value: Value, index: Value) -> Value:
    if isinstance(value, TorchMomenta) and isinstance(index, Tensor):
        return by_component(lambda part: _item(part, index), value)
    if isinstance(index, Tensor) and isinstance(value, Tensor) and value.ndim == index.ndim == 2:
        if index.dtype == torch.int64:
            return torch.gather(value, 1, index)
    elif index in ((slice(None), None), (..., None)) and isinstance(value, Tensor) and value.ndim == 1:
        return value[:, None]
    raise ValueError("the only indices that can be exported are [:, None] and positions, as of ak.argsort")


def _values_astype(column: Value, to: str) -> Tensor:
    result: Tensor = column.to(getattr(torch, to))
    return result


def _conversion(name: str) -> Function:
    def call(column: Value) -> Value:
        return _values_astype(column, name) if isinstance(column, Tensor) else column

    return call


_UNCHANGED = (
    "np.array",
    "np.asarray",
    "np.copy",
    "ak.copy",
    "ak.Array",
    "ak.from_numpy",
    "ak.to_numpy",
    "ak.to_packed",
)


def _finish(value: Value, table: Columns) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, int | float):
        first = next(iter(table.values()))
        return torch.full_like(first if first.ndim == 1 else first[:, 0], value, dtype=torch.float64)
    raise TypeError("does not give a column")


def torch_functions(mask: Tensor) -> FunctionTable:
    """Return the functions of formulas in torch, for jets with this mask of real particles (N, P)."""
    numpy = NUMPY_FUNCTIONS
    functions: dict[str, Function] = {
        name: function for name, function in numpy.functions.items() if name.startswith("math.")
    }
    for table, fractions in ((_ANY, False), (_FRACTIONS, True)):
        for name, function in table.items():
            for full in (f"np.{name}", f"ak.{name}"):
                if full in numpy.functions:
                    functions[full] = elementwise(function, numpy.functions[full], fractions=fractions)
    for name, function in reductions(mask).items():
        for full in (f"np.{name}", f"ak.{name}"):
            if full in numpy.functions:
                functions[full] = _reduction(function)
    for module in ("np", "ak"):
        functions[f"{module}.sum"] = with_sum(functions[f"{module}.sum"])
        functions |= {f"{module}.{name}": function for name, function in _sorting(mask).items()}
    functions |= {f"np.{name}.reduce": _over_list(functions[f"np.{name}"]) for name in _OVER_LISTS}
    functions |= {f"np.{name}": _conversion(name) for name in TYPE_NAMES.split()}
    functions |= {
        f"np.{new}": functions[f"np.{old}"] for new, old in NEW_NAMES.items() if f"np.{old}" in functions
    }
    functions |= dict.fromkeys(_UNCHANGED, lambda column: column)
    functions |= dict.fromkeys(("np.expand_dims", "ak.singletons"), _expanded)
    functions |= {
        "np.squeeze": _squeezed,
        "np.isin": _is_in,
        "np.digitize": _digitize,
        "np.searchsorted": _search_sorted,
        "abs": functions["np.abs"],
        "_batch_argsort": functions["ak.argsort"],
        "_batch_gather": _item,
        "np.amin": functions["np.min"],
        "np.amax": functions["np.max"],
        "np.around": functions["np.round"],
        "ak.values_astype": _values_astype,
        "_clip": functions["np.clip"],
        "_p4_from_pxpypze": momenta(from_cartesian),
        "_p4_from_ptetaphie": momenta(from_energy),
        "_p4_from_ptetaphim": momenta(from_mass),
    }
    operators: dict[type[ast.AST], Function] = {
        kind: elementwise(function, numpy.operators[kind]) for kind, function in _OPERATORS.items()
    }
    operators[ast.Div] = elementwise(torch.true_divide, numpy.operators[ast.Div], fractions=True)
    operators = {
        kind: with_momenta(PYTHON_OPERATORS[kind], on_columns) for kind, on_columns in operators.items()
    }
    functions |= distances(operators[ast.Sub])
    return FunctionTable(functions, operators, item=_item, attribute=_attribute, finish=_finish)
