"""Constants, operators and functions of formulas, each from an explicit list."""

import ast
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import awkward as ak
import numpy as np

import partt.data.formulas.column_functions as columns
from partt.data.formulas.column_functions import Function, elementwise, inside_jets, reduction


@dataclass(frozen=True)
class FunctionTable:
    """What evaluating formulas needs from a backend (numpy here; torch for export)."""

    functions: Mapping[str, Function]  # "np.log", "len", "_clip", ...
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
    greater greater_equal less less_equal equal not_equal bitwise_and bitwise_or bitwise_xor invert
"""
_MATH = """
    sqrt cbrt exp expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
    hypot fabs degrees radians
"""
_NUMPY_NAMES = {arc: f"arc{arc[1:]}" for arc in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")}
_REDUCTIONS = "sum prod min max mean std var any all argmin argmax count_nonzero"


def _functions() -> dict[str, Function]:
    table: dict[str, Function] = {f"np.{name}": elementwise(getattr(np, name)) for name in _UFUNCS.split()}
    table |= {
        f"math.{name}": columns.single_number(getattr(math, name), _NUMPY_NAMES.get(name, name))
        for name in _MATH.split()
    }
    for module in ("np", "ak"):
        table |= {f"{module}.{name}": reduction(getattr(ak, name)) for name in _REDUCTIONS.split()}
        table |= {
            f"{module}.where": elementwise(np.where, range(3, 4)),
            f"{module}.nan_to_num": elementwise(np.nan_to_num, range(1, 2), "nan posinf neginf"),
            f"{module}.round": elementwise(np.round, range(1, 3), "decimals"),
            f"{module}.zeros_like": elementwise(np.zeros_like, range(1, 2)),
            f"{module}.ones_like": elementwise(np.ones_like, range(1, 2)),
            f"{module}.full_like": elementwise(np.full_like, range(1, 3), "fill_value"),
            f"{module}.sort": inside_jets(ak.sort, "ascending stable"),
            f"{module}.argsort": inside_jets(ak.argsort, "ascending stable"),
            f"{module}.concatenate": columns.concatenate,
        }
    return table | {
        "np.clip": elementwise(columns.clip, range(1, 4), "a_min a_max"),
        "np.around": table["np.round"],
        "np.amin": table["np.min"],
        "np.amax": table["np.max"],
        "np.stack": columns.stack,
        "ak.num": inside_jets(ak.num),
        "ak.count": reduction(ak.count),
        "ak.firsts": inside_jets(ak.firsts),
        "ak.local_index": inside_jets(ak.local_index),
        "ak.pad_none": columns.pad_none,
        "ak.fill_none": columns.fill_none,
        "ak.is_none": columns.is_none,
        "ak.drop_none": columns.drop_none,
        "ak.flatten": columns.flatten,
        "ak.values_astype": columns.values_astype,
        "ak.to_numpy": columns.identity,
        "len": columns.length,
        "_clip": elementwise(columns.clip, range(1, 4), "a_min a_max"),
        "_batch_argsort": inside_jets(ak.argsort),
        "_batch_gather": columns.item,
        "_p4_from_pxpypze": columns.momenta("px", "py", "pz", "energy"),
        "_p4_from_ptetaphie": columns.momenta("pt", "eta", "phi", "energy"),
        "_p4_from_ptetaphim": columns.momenta("pt", "eta", "phi", "mass"),
    }


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
CONSTANTS: Mapping[str, float] = {
    **{f"np.{name}": getattr(np, name) for name in ("pi", "e", "inf", "nan")},
    **{f"math.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")},
}
NUMPY_FUNCTIONS = FunctionTable(
    functions=_functions(),
    operators={kind: columns.checked_operator(function) for kind, function in PYTHON_OPERATORS.items()},
    item=columns.item,
    attribute=columns.attribute,
    finish=columns.finish,
)
REFUSED: Mapping[str, str] = {
    "_pad": "partt does not pad jets",
    "_repeat_pad": "partt does not pad jets",
    "_hash": "its values differ from run to run",
    "_concat": "write ak.concatenate",
    "_stack": "write np.stack",
    "_knn": "the network finds neighbours itself",
    "_batch_knn": "the network finds neighbours itself",
    "_batch_permute_indices": "random numbers differ from run to run",
    "_batch_permute_and_drop_indices": "random numbers differ from run to run",
    "np.random": "random numbers differ from run to run",
    "np.zeros": "write np.zeros_like(a column)",
    "np.ones": "write np.ones_like(a column)",
    "np.full": "write np.full_like(a column, value)",
    "ak.unflatten": "not needed: all functions act within each jet",
}
