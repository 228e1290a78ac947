"""Formulas of data configs in torch, for tracing: a table of functions for `evaluate`.

A column is a tensor: (N,) values per jet, (N, P) values per particle in padded slots. numpy's rules hold:
numbers leave float32 as it is, integers that meet fractions become float64.

Axes: N jets, P slots.
"""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from partt.data.formulas.column_functions import Function, Value
from partt.data.formulas.expressions import Formula, evaluate
from partt.data.formulas.functions import NUMPY_FUNCTIONS, FunctionTable
from partt.errors import ConfigError

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


def _hypot(x: Tensor, y: Tensor) -> Tensor:
    return (x.square() + y.square()).sqrt()


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
    "hypot": _hypot,
    "rint": torch.round,
    "round": torch.round,
    "nan_to_num": _nan_to_num,
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
        if any(isinstance(argument, list | _Momenta) for argument in arguments):
            raise TypeError("takes columns and numbers only")
        fractional = fractions or any(
            argument.is_floating_point() if isinstance(argument, Tensor) else isinstance(argument, float)
            for argument in arguments
        )
        per_particle = any(tensor.ndim == 2 for tensor in tensors)

        def aligned(argument: Value) -> Value:
            if not isinstance(argument, Tensor):
                return argument
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
        return function(*values, **options)

    return call


_TAKE_NUMBERS = (torch.where, torch.full_like, torch.round, _clip, _nan_to_num)


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


# --- four-momenta, indices, results ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Momenta:
    """Four-momenta in Cartesian coordinates, and the coordinates that were given."""

    px: Tensor
    py: Tensor
    pz: Tensor
    energy: Tensor
    given: Columns

    def component(self, name: str) -> Tensor:  # noqa: PLR0911 - one line for each component
        if name in self.given:
            return self.given[name]
        if name in {"px", "py", "pz", "energy"}:
            component: Tensor = getattr(self, name)
            return component
        pt = _hypot(self.px, self.py)
        p = _hypot(pt, self.pz)
        match name:
            case "pt":
                return pt
            case "p":
                return p
            case "eta":
                return torch.asinh(self.pz / pt)
            case "phi":
                return torch.atan2(self.py, self.px)
            case "theta":
                return torch.atan2(pt, self.pz)
            case "rapidity":
                return 0.5 * torch.log((self.energy + self.pz) / (self.energy - self.pz))
            case "mass":
                squared = self.energy.square() - p.square()
                return squared.sign() * squared.abs().sqrt()
        raise TypeError(f"has no component .{name} in an exported file")


def _from_cartesian(px: Tensor, py: Tensor, pz: Tensor, energy: Tensor) -> _Momenta:
    return _Momenta(px, py, pz, energy, {})


def _from_energy(pt: Tensor, eta: Tensor, phi: Tensor, energy: Tensor) -> _Momenta:
    given = {"pt": pt, "eta": eta, "phi": phi}
    return _Momenta(pt * phi.cos(), pt * phi.sin(), pt * eta.sinh(), energy, given)


def _from_mass(pt: Tensor, eta: Tensor, phi: Tensor, mass: Tensor) -> _Momenta:
    energy = _hypot(pt * eta.cosh(), mass)
    given = {"pt": pt, "eta": eta, "phi": phi, "mass": mass}
    return _Momenta(pt * phi.cos(), pt * phi.sin(), pt * eta.sinh(), energy, given)


def _momenta(function: Function) -> Function:
    def call(*columns: Value) -> _Momenta:
        if not all(isinstance(column, Tensor) for column in columns):
            raise TypeError("takes only columns in an exported file")
        per_particle = any(column.ndim == 2 for column in columns)
        result: _Momenta = function(
            *(column[:, None] if per_particle and column.ndim == 1 else column for column in columns)
        )
        return result

    return call


def _attribute(value: Value, name: str) -> Tensor:
    if not isinstance(value, _Momenta):
        raise TypeError(f"only what _p4_from_...() returns has .{name}")
    return value.component(name)


def _item(value: Value, index: Value) -> Tensor:
    if index != (slice(None), None) or not isinstance(value, Tensor) or value.ndim != 1:
        raise ValueError("the only index that can be exported is [:, None] of a value per jet")
    return value[:, None]


def _values_astype(column: Value, to: str) -> Tensor:
    result: Tensor = column.to(getattr(torch, to))
    return result


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
    functions |= {
        "np.amin": functions["np.min"],
        "np.amax": functions["np.max"],
        "np.around": functions["np.round"],
        "ak.values_astype": _values_astype,
        "ak.to_numpy": lambda column: column,
        "_clip": functions["np.clip"],
        "_p4_from_pxpypze": _momenta(_from_cartesian),
        "_p4_from_ptetaphie": _momenta(_from_energy),
        "_p4_from_ptetaphim": _momenta(_from_mass),
    }
    operators: dict[type[ast.AST], Function] = {
        kind: elementwise(function, numpy.operators[kind]) for kind, function in _OPERATORS.items()
    }
    operators[ast.Div] = elementwise(torch.true_divide, numpy.operators[ast.Div], fractions=True)
    return FunctionTable(functions, operators, item=_item, attribute=_attribute, finish=_finish)
