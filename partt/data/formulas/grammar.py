"""The grammar of formulas: the Python syntax that they may use; everything else is refused."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from partt.config import did_you_mean
from partt.data.formulas.column_functions import MAX_INTEGER, MOMENTUM_ATTRIBUTES, TYPE_NAMES, compute_numbers
from partt.data.formulas.functions import CONSTANTS, NUMPY_FUNCTIONS, PYTHON_OPERATORS, REFUSED
from partt.errors import ConfigError

MAX_DEPTH = 50
MAX_INDEX = 2**31 - 1
MODULES = {"np": "np", "numpy": "np", "ak": "ak", "awkward": "ak", "math": "math"}
KEYWORDS = (
    "axis keepdims a_min a_max nan posinf neginf decimals fill_value value ascending stable target clip"
)


def check_depth(tree: ast.expr) -> None:
    """Raise an error for a tree with too many levels, without recursion."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        ]
    if level:
        raise ConfigError(f"the formula is nested deeper than {MAX_DEPTH} levels")


def check_syntax(node: ast.expr) -> ast.expr:
    """Check a node and everything below it; return it with operations on constants computed."""
    if type(node) not in _CHECKS:
        raise refused(node, _REASONS.get(type(node), "is not part of the formula language"))
    return _CHECKS[type(node)](node)


def _check_constant(node: ast.Constant) -> ast.expr:
    if isinstance(node.value, str | bytes):
        raise refused(node, "text is not supported in formulas")
    if not isinstance(node.value, int | float):
        raise refused(node, "is not a number")
    if abs(node.value) >= MAX_INTEGER and isinstance(node.value, int):
        raise ConfigError("a number in the formula does not fit into 64 bits")
    return node


def _check_name(node: ast.Name) -> ast.expr:
    if node.id in MODULES or node.id in NUMPY_FUNCTIONS.functions:
        raise refused(node, "is a function or a module, not a variable")
    if node.id.startswith("_"):
        raise refused(node, "names that start with an underscore are reserved")
    return node


def _check_attribute(node: ast.Attribute) -> ast.expr:
    name = _dotted_name(node)
    if name in CONSTANTS:
        return ast.Constant(CONSTANTS[name])
    if name.partition(".")[0] in MODULES:
        raise refused(node, _why_not(name))
    if node.attr not in MOMENTUM_ATTRIBUTES.split():
        raise refused(
            node, f"has no component .{node.attr}; allowed are .{MOMENTUM_ATTRIBUTES.replace(' ', ' .')}"
        )
    return ast.Attribute(check_syntax(node.value), node.attr)


def _check_unary(node: ast.UnaryOp) -> ast.expr:
    if isinstance(node.op, ast.Not):
        raise refused(node, "write ~(...) instead of `not`")
    operand = _check_operand(node.operand)
    return _computed(ast.UnaryOp(node.op, operand), node.op, [operand])


def _check_binary(node: ast.BinOp) -> ast.expr:
    if type(node.op) not in PYTHON_OPERATORS:
        raise refused(node, "this operator is not supported in formulas")
    left, right = _check_operand(node.left), _check_operand(node.right)
    return _computed(ast.BinOp(left, node.op, right), node.op, [left, right])


def _check_operand(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.List | ast.Tuple):
        raise refused(node, "lists are for the arguments of functions only")
    return check_syntax(node)


def _computed(node: ast.expr, kind: ast.AST, operands: list[ast.expr]) -> ast.expr:
    """Compute an operation on constants now, with limits: 9**9**9 must not run."""
    numbers: list[Any] = [operand.value for operand in operands if isinstance(operand, ast.Constant)]
    if len(numbers) < len(operands):
        return node
    try:
        return ast.Constant(compute_numbers(PYTHON_OPERATORS[type(kind)], *numbers))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise refused(node, str(error)) from error


def _check_compare(node: ast.Compare) -> ast.expr:
    """Turn a < b < c into (a < b) & (b < c)."""
    operands = [_check_operand(operand) for operand in [node.left, *node.comparators]]
    middle = operands[1:-1]
    if any(isinstance(operand, ast.BinOp) and isinstance(operand.op, _LOGIC) for operand in middle):
        # Python reads a > 1 & b < 2 as a > (1 & b) < 2, which nobody means.
        raise refused(node, "put parentheses around each comparison: (a > 1) & (b < 2)")
    if unknown := [kind for kind in node.ops if type(kind) not in PYTHON_OPERATORS]:
        raise refused(node, f"comparisons with {_WORDS[type(unknown[0])]!r} do not work on columns")
    pairs = [
        ast.Compare(left, [kind], [right])
        for left, kind, right in zip(operands, node.ops, operands[1:], strict=False)
    ]
    result: ast.expr = pairs[0]
    for pair in pairs[1:]:
        result = ast.BinOp(result, ast.BitAnd(), pair)
    return result


def _check_list(node: ast.List | ast.Tuple) -> ast.expr:
    return ast.List([_check_operand(element) for element in node.elts], ast.Load())


def _check_call(node: ast.Call) -> ast.expr:
    name = _dotted_name(node.func)
    if name not in NUMPY_FUNCTIONS.functions:
        raise refused(node.func, _why_not(name))
    keywords = []
    for keyword in node.keywords:
        if keyword.arg not in KEYWORDS.split():
            raise refused(node, f"keyword {keyword.arg!r} is not supported in formulas")
        keywords.append(ast.keyword(keyword.arg, _check_argument(keyword.value)))
    arguments = node.args
    if name == "ak.values_astype" and len(arguments) == 2:
        arguments = [check_syntax(arguments[0]), _check_type(arguments[1])]
    else:
        arguments = [_check_argument(argument) for argument in arguments]
    return ast.Call(ast.Name(name, ast.Load()), arguments, keywords)


def _check_argument(node: ast.expr) -> ast.expr:
    is_none = isinstance(node, ast.Constant) and node.value is None
    return node if is_none else check_syntax(node)  # axis=None, a_min=None


def _check_type(node: ast.expr) -> ast.expr:
    name = _dotted_name(node).removeprefix("np.").removesuffix("_")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value
    if name not in TYPE_NAMES.split():
        raise refused(node, f"is not a type; allowed are {TYPE_NAMES}")
    return ast.Constant(name)


def _check_subscript(node: ast.Subscript) -> ast.expr:
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    checked = [_check_index(index) for index in indices]
    index = ast.Tuple(checked, ast.Load()) if isinstance(node.slice, ast.Tuple) else checked[0]
    return ast.Subscript(_check_operand(node.value), index, ast.Load())


def _check_index(node: ast.expr) -> ast.expr:
    if not isinstance(node, ast.Slice):
        return _check_argument(node)
    bounds = [bound and _check_argument(bound) for bound in (node.lower, node.upper, node.step)]
    if not all(bound is None or isinstance(bound, ast.Constant) for bound in bounds):
        raise refused(node, "the bounds of a slice must be constants")
    numbers = [bound.value for bound in bounds if isinstance(bound, ast.Constant) and bound.value is not None]
    if not all(isinstance(number, int) and abs(number) <= MAX_INDEX for number in numbers):
        raise refused(node, f"the bounds of a slice must be whole numbers up to {MAX_INDEX}")
    if isinstance(bounds[2], ast.Constant) and bounds[2].value == 0:
        raise refused(node, "the step of a slice must not be 0")
    return ast.Slice(*bounds)


def _dotted_name(node: ast.expr) -> str:
    """Return np.log for numpy.log; an empty string if the node is not a dotted name."""
    if isinstance(node, ast.Name):
        return MODULES.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def function_name(node: ast.expr) -> str:
    """Return the name of the function in a checked call; an empty string for any other node."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _why_not(name: str) -> str:
    reason = next(
        (REFUSED[known] for known in REFUSED if name == known or name.startswith(f"{known}.")), None
    )
    if reason:
        return f"cannot be used in formulas: {reason}"
    known = [*NUMPY_FUNCTIONS.functions, *CONSTANTS]
    return f"is not among the functions that formulas may use{did_you_mean(name, known)}"


def refused(node: ast.expr, reason: str) -> ConfigError:
    """Return an error that quotes a part of a formula."""
    return ConfigError(f"`{shorten(ast.unparse(node))}` in a formula: {reason}")


def shorten(text: str) -> str:
    """Shorten a quotation to fit into a message."""
    return text if len(text) <= 80 else f"{text[:77]}..."


_LOGIC = (ast.BitAnd, ast.BitOr, ast.BitXor)
_WORDS = {ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}
_REASONS: Mapping[type[ast.expr], str] = {
    ast.BoolOp: "write & and | with parentheses around each part instead of `and` and `or`",
    ast.IfExp: "write np.where(condition, a, b) instead of `if`",
    ast.Slice: "slices are for indices only",
}
_CHECKS: Mapping[type[ast.expr], Callable[[Any], ast.expr]] = {
    ast.Constant: _check_constant,
    ast.Name: _check_name,
    ast.Attribute: _check_attribute,
    ast.UnaryOp: _check_unary,
    ast.BinOp: _check_binary,
    ast.Compare: _check_compare,
    ast.List: _check_list,
    ast.Tuple: _check_list,
    ast.Call: _check_call,
    ast.Subscript: _check_subscript,
}
