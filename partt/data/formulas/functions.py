"""Constants, operators and functions of formulas, each from an explicit list."""

import ast
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import awkward as ak
import numpy as np

import partt.data.formulas.column_functions as columns
from partt.data.formulas import four_momenta, reshaping
from partt.data.formulas.column_functions import (
    TYPE_NAMES,
    Function,
    Value,
    elementwise,
    inside_jets,
    lookup,
    reduction,
)


@dataclass(frozen=True)
class FunctionTable:
    """What evaluating formulas needs from a backend (numpy here; torch for export)."""

    functions: Mapping[str, Function]  # "np.log", "len", "_clip", ...; ".deltaR" is a method
    operators: Mapping[type[ast.AST], Function]  # ast.Add, ast.USub, ast.Less, ...
    item: Function  # (value, index) -> value[index]
    attribute: Function  # (momenta, "pt") -> momenta.pt
    finish: Function  # (value, table) -> the result of a formula as a column


_UFUNCS = """
    abs absolute fabs sign signbit copysign heaviside sqrt cbrt square reciprocal
    exp exp2 expm1 log log2 log10 log1p
    sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh arctanh
    hypot deg2rad rad2deg degrees radians
    add subtract multiply divide true_divide floor_divide negative positive mod fmod remainder
    power float_power maximum minimum fmax fmin floor ceil trunc rint
    isnan isinf isfinite logical_and logical_or logical_xor logical_not
    greater greater_equal less less_equal equal not_equal
    bitwise_and bitwise_or bitwise_xor bitwise_not invert left_shift right_shift
"""
# numpy 2 has these as well
NEW_NAMES = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "concat": "concatenate",
    "pow": "power",
}
_MATH = """
    sqrt cbrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
    hypot fabs degrees radians
"""
_REDUCTIONS = """
    sum prod min max mean std var any all argmin argmax count_nonzero ptp
    nansum nanprod nanmin nanmax nanmean nanstd nanvar nanargmin nanargmax
"""
_OVER_LISTS = "logical_and logical_or logical_xor bitwise_and bitwise_or add multiply maximum minimum"


def _functions() -> dict[str, Function]:
    table: dict[str, Function] = {f"np.{name}": elementwise(getattr(np, name)) for name in _UFUNCS.split()}
    table |= {f"np.{name}.reduce": columns.over_list(getattr(np, name)) for name in _OVER_LISTS.split()}
    table |= {
        f"math.{name}": columns.single_number(getattr(math, name), NEW_NAMES.get(name, name))
        for name in _MATH.split()
    }
    for module in ("np", "ak"):
        table |= {f"{module}.{name}": reduction(getattr(ak, name)) for name in _REDUCTIONS.split()}
        table |= {
            f"{module}.sum": four_momenta.with_sum(reduction(ak.sum)),
            f"{module}.where": elementwise(columns.where, range(3, 4)),
            f"{module}.nan_to_num": elementwise(np.nan_to_num, range(1, 2), "nan posinf neginf"),
            f"{module}.round": elementwise(np.round, range(1, 3), "decimals"),
            f"{module}.isclose": elementwise(np.isclose, range(2, 5), "rtol atol"),
            f"{module}.real": elementwise(np.real, range(1, 2)),
            f"{module}.zeros_like": elementwise(np.zeros_like, range(1, 2), "dtype"),
            f"{module}.ones_like": elementwise(np.ones_like, range(1, 2), "dtype"),
            f"{module}.full_like": elementwise(np.full_like, range(1, 3), "fill_value dtype"),
            f"{module}.sort": inside_jets(ak.sort, "ascending stable"),
            f"{module}.argsort": inside_jets(ak.argsort, "ascending stable"),
            f"{module}.concatenate": reshaping.concatenate,
            f"{module}.broadcast_arrays": reshaping.broadcast_arrays,
            f"{module}.ravel": reshaping.ravel,
            f"{module}.copy": columns.identity,
        }
    table |= {
        "np.clip": elementwise(columns.clip, range(1, 4), "a_min a_max"),
        "np.around": table["np.round"],
        "np.amin": table["np.min"],
        "np.amax": table["np.max"],
        "np.angle": elementwise(np.angle, range(1, 2)),
        "np.select": columns.select,
        "np.isin": lookup(np.isin),
        "np.in1d": lookup(np.isin),
        "np.digitize": lookup(np.digitize, "right"),
        "np.searchsorted": lookup(np.searchsorted, "side"),
        "np.interp": lookup(np.interp),
        "np.array": columns.identity,
        "np.asarray": columns.identity,
        "np.stack": reshaping.stack,
        "np.vstack": reshaping.stack,
        "np.column_stack": reshaping.stack_values,
        "np.squeeze": reshaping.squeeze,
        "np.expand_dims": reshaping.expand_dims,
        "np.reshape": reshaping.reshape,
        "ak.num": inside_jets(ak.num),
        "ak.count": reduction(ak.count),
        "ak.firsts": inside_jets(ak.firsts),
        "ak.singletons": reshaping.singletons,
        "ak.local_index": inside_jets(ak.local_index),
        "ak.softmax": inside_jets(ak.softmax),
        "ak.pad_none": reshaping.pad_none,
        "ak.fill_none": columns.fill_none,
        "ak.is_none": columns.is_none,
        "ak.drop_none": columns.drop_none,
        "ak.nan_to_none": columns.nan_to_none,
        "ak.mask": columns.mask,
        "ak.flatten": reshaping.flatten,
        "ak.unflatten": reshaping.unflatten,
        "ak.to_regular": reshaping.to_regular,
        "ak.from_regular": reshaping.from_regular,
        "ak.values_astype": columns.values_astype,
        "ak.to_numpy": columns.identity,
        "ak.from_numpy": columns.identity,
        "ak.to_packed": columns.identity,
        "ak.Array": columns.identity,
        "len": columns.length,
        "abs": table["np.abs"],
        "_clip": elementwise(columns.clip, range(1, 4), "a_min a_max"),
        "_hash": columns.hash_values,
        "_concat": reshaping.concatenate,
        "_stack": reshaping.stack_values,
        "_pad": reshaping.pad,
        "_repeat_pad": reshaping.repeat_pad,
        "_batch_argsort": inside_jets(ak.argsort),
        "_batch_gather": columns.item,
        "_p4_from_pxpypze": four_momenta.momenta("px", "py", "pz", "energy"),
        "_p4_from_ptetaphie": four_momenta.momenta("pt", "eta", "phi", "energy"),
        "_p4_from_ptetaphim": four_momenta.momenta("pt", "eta", "phi", "mass"),
    }
    table |= {f".{name}": four_momenta.distance(name) for name in four_momenta.DISTANCES.split()}
    table |= {f"np.{name}": _conversion(name) for name in TYPE_NAMES.split()}
    table["np.bool_"] = table["np.bool"]
    return table | {f"np.{new}": table[f"np.{old}"] for new, old in NEW_NAMES.items()}


def _conversion(name: str) -> Function:
    def call(column: Value) -> Value:
        return columns.values_astype(column, name)

    return call


PYTHON_OPERATORS: Mapping[type[ast.AST], Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
CONSTANTS: Mapping[str, float | None] = {
    **{f"np.{name}": getattr(np, name) for name in ("pi", "e", "inf", "nan", "newaxis")},
    **{f"math.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")},
}
# Methods of arrays, those of awkward 0 included -> the functions that they are.
METHODS: Mapping[str, str] = {
    **{name: f"np.{name}" for name in _REDUCTIONS.split() if not name.startswith("nan")},
    **{name: f"np.{name}" for name in ("argsort", "clip", "copy", "ravel", "reshape", "round", "squeeze")},
    **{name: f".{name}" for name in four_momenta.DISTANCES.split()},
    "astype": "ak.values_astype",
    "fillna": "ak.fill_none",
    "flatten": "ak.flatten",
    "pad": "ak.pad_none",
    "regular": "ak.to_regular",
    "to_numpy": "ak.to_numpy",
}
NUMPY_FUNCTIONS = FunctionTable(
    functions=_functions(),
    operators={
        kind: four_momenta.with_momenta(function, columns.checked_operator(function))
        for kind, function in PYTHON_OPERATORS.items()
    },
    item=columns.item,
    attribute=four_momenta.component,
    finish=columns.finish,
)
_RANDOM = "random numbers differ from run to run"
_NEIGHBOURS = "the network finds neighbours itself"
_FLAT = "all functions act within each jet"
REFUSED: Mapping[str, str] = {
    "_knn": _NEIGHBOURS,
    "_batch_knn": _NEIGHBOURS,
    "_batch_permute_indices": _RANDOM,
    "_batch_permute_and_drop_indices": _RANDOM,
    "np.random": _RANDOM,
    "np.zeros": "write np.zeros_like(a column)",
    "np.ones": "write np.ones_like(a column)",
    "np.full": "write np.full_like(a column, value)",
    "np.empty": "write np.zeros_like(a column)",
    "np.empty_like": "write np.zeros_like(a column)",
    "np.arange": "write ak.local_index(a column) for positions in each jet",
    "np.repeat": "values per jet are repeated for each particle where needed",
    "np.tile": "values per jet are repeated for each particle where needed",
    "np.broadcast_to": "values per jet are repeated for each particle where needed",
    "np.hstack": "write ak.concatenate([...], axis=1)",
    "np.append": "write ak.concatenate([...], axis=1)",
    "np.take": "write x[index]",
    "np.take_along_axis": "write x[index]",
    "np.flip": "write x[:, ::-1]",
    "np.ln": "write np.log",
    "np.count": "write ak.num or ak.count",
    "np.vectorize": "write the formula with functions of columns",
    "np.apply_along_axis": "write the formula with functions of columns",
    "np.median": "write np.mean, or take x[:, i] of ak.sort(x)",
    "np.linalg.norm": "write np.hypot, or np.sqrt of a sum of squares",
    "np.unique": _FLAT,
    "np.cumsum": _FLAT,
    "ak.run_lengths": _FLAT,
    "ak.counts": "write ak.num",
    "ak.pad": "write ak.pad_none",
    "ak.fillna": "write ak.fill_none",
    "ak.fromcounts": "not needed: all functions act within each jet",
    "min": "write np.minimum(a, b), or np.min(x, axis=1)",
    "max": "write np.maximum(a, b), or np.max(x, axis=1)",
    "sum": "write np.sum(x, axis=1)",
    "any": "write np.any(x, axis=1)",
    "all": "write np.all(x, axis=1)",
    "pow": "write a ** b",
    "round": "write np.round(x)",
    "float": "write np.float32(x)",
    "int": "write np.int32(x)",
    "bool": "write np.bool(x)",
}
