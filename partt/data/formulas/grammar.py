"""The grammar of formulas: the Python syntax that they may use; everything else is refused."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from partt.config import did_you_mean
from partt.data.formulas.column_functions import MAX_INTEGER, TYPE_NAMES, compute_numbers
from partt.data.formulas.four_momenta import COMPONENTS
from partt.data.formulas.functions import CONSTANTS, METHODS, NUMPY_FUNCTIONS, PYTHON_OPERATORS, REFUSED
from partt.errors import ConfigError

MAX_DEPTH = 100
MAX_INDEX = 2**31 - 1
MAX_QUOTE = 80  # characters of a formula in a message
MODULES = {"np": "np", "numpy": "np", "ak": "ak", "awkward": "ak", "math": "math"}
KEYWORDS = """
    axis keepdims mask_identity a_min a_max nan posinf neginf decimals rtol atol fill_value value
    ascending stable target clip maxlen counts default right side dtype to
"""
TYPES = {"float": "float64", "int": "int64", **{name: name for name in TYPE_NAMES.split()}}
SIDES = ("left", "right")


class Chain(ast.expr):
    """Operations one after another, from left to right: first, then ops[i] with operands[i].

    Python nests a + b + c + ... deeper with each term; as a chain it is one level.
    """

    _fields = ("first", "ops", "operands")

    def __init__(self, first: ast.expr, ops: list[ast.operator], operands: list[ast.expr]) -> None:
        super().__init__()
        self.first, self.ops, self.operands = first, ops, operands

    def until(self, count: int) -> ast.expr:
        """Return the first operations of the chain."""
        return Chain(self.first, self.ops[:count], self.operands[:count]) if count else self.first

    def __reduce__(self) -> tuple[Any, ...]:
        return Chain, (self.first, self.ops, self.operands)


def _as_chain(node: ast.BinOp) -> Chain:
    """Return a + b + c as a chain, without recursion."""
    ops, operands = [], []
    first: ast.expr = node
    while isinstance(first, ast.BinOp):
        ops.append(first.op)
        operands.append(first.right)
        first = first.left
    return Chain(first, ops[::-1], operands[::-1])


def check_depth(tree: ast.expr) -> None:
    """Raise an error for a tree with too many levels, without recursion."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _below(node)]
    if level:
        raise ConfigError(f"the formula is nested deeper than {MAX_DEPTH} levels")


def _below(node: ast.AST) -> list[ast.AST]:
    parts = ast.iter_child_nodes(_as_chain(node) if isinstance(node, ast.BinOp) else node)
    return [part for part in parts if isinstance(part, ast.expr | ast.keyword)]


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
        if CONSTANTS[name] is None:
            raise refused(node, "is for indices only, as in [:, np.newaxis]")
        return ast.Constant(CONSTANTS[name])
    if name.partition(".")[0] in MODULES:
        raise refused(node, _why_not(name))
    if node.attr == "counts":  # of awkward 0
        return ast.Call(ast.Name("ak.num", ast.Load()), [check_syntax(node.value)], [])
    if node.attr not in COMPONENTS.split():
        allowed = " .".join(COMPONENTS.split())
        raise refused(node, f"has no component .{node.attr}; allowed are .{allowed}")
    return ast.Attribute(check_syntax(node.value), node.attr)


def _check_unary(node: ast.UnaryOp) -> ast.expr:
    if isinstance(node.op, ast.Not):
        raise refused(node, "write ~(...) instead of `not`")
    operand = _check_operand(node.operand)
    return _computed(ast.UnaryOp(node.op, operand), node.op, [operand])


def _check_binary(node: ast.BinOp) -> ast.expr:
    chain = _as_chain(node)
    first = _check_operand(chain.first)
    ops: list[ast.operator] = []
    operands: list[ast.expr] = []
    for op, operand in zip(chain.ops, chain.operands, strict=True):
        if type(op) not in PYTHON_OPERATORS:
            raise refused(node, "this operator is not supported in formulas")
        checked = _check_operand(operand)
        if not ops and isinstance(first, ast.Constant) and isinstance(checked, ast.Constant):
            first = _computed(Chain(first, [op], [checked]), op, [first, checked])
        else:
            ops.append(op)
            operands.append(checked)
    return Chain(first, ops, operands) if ops else first


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
    if any(isinstance(operand, Chain) and isinstance(operand.ops[-1], _LOGIC) for operand in middle):
        # Python reads a > 1 & b < 2 as a > (1 & b) < 2, which nobody means.
        raise refused(node, "put parentheses around each comparison: (a > 1) & (b < 2)")
    if unknown := [kind for kind in node.ops if type(kind) not in PYTHON_OPERATORS]:
        raise refused(node, f"comparisons with {_WORDS[type(unknown[0])]!r} do not work on columns")
    pairs = [
        ast.Compare(left, [kind], [right])
        for left, kind, right in zip(operands, node.ops, operands[1:], strict=False)
    ]
    return Chain(pairs[0], [ast.BitAnd()] * len(pairs[1:]), [*pairs[1:]]) if pairs[1:] else pairs[0]


def _check_list(node: ast.List | ast.Tuple) -> ast.expr:
    return ast.List([_check_operand(element) for element in node.elts], ast.Load())


def _check_call(node: ast.Call) -> ast.expr:
    name = _dotted_name(node.func)
    arguments = node.args
    if name not in NUMPY_FUNCTIONS.functions:
        if not isinstance(node.func, ast.Attribute) or name.partition(".")[0] in MODULES:
            raise refused(node.func, _why_not(name))
        if node.func.attr not in METHODS:
            raise refused(node.func, f"there is no method {node.func.attr!r} in formulas")
        name = METHODS[node.func.attr]
        arguments = [node.func.value, *arguments]
    keywords = []
    for keyword in node.keywords:
        if keyword.arg not in KEYWORDS.split():
            raise refused(node, f"keyword {keyword.arg!r} is not supported in formulas")
        keywords.append(ast.keyword(keyword.arg, _check_option(keyword.arg, keyword.value)))
    type_at = _TYPE_ARGUMENTS.get(name)
    checked = [
        _check_type(argument) if position == type_at else _check_argument(argument)
        for position, argument in enumerate(arguments)
    ]
    return ast.Call(ast.Name(name, ast.Load()), checked, keywords)


def _check_option(name: str, node: ast.expr) -> ast.expr:
    if name in {"dtype", "to"}:
        return _check_type(node)
    if name == "side":
        if not isinstance(node, ast.Constant) or node.value not in SIDES:
            raise refused(node, f"side must be {' or '.join(map(repr, SIDES))}")
        return node
    return _check_argument(node)


def _check_argument(node: ast.expr) -> ast.expr:
    is_none = isinstance(node, ast.Constant) and node.value is None
    return node if is_none else check_syntax(node)  # axis=None, a_min=None, [:, None]


def _check_type(node: ast.expr) -> ast.expr:
    name = _dotted_name(node).removeprefix("np.").removesuffix("_")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        name = node.value
    if name not in TYPES:
        raise refused(node, f"is not a type; allowed are {TYPE_NAMES}")
    return ast.Constant(TYPES[name])


def _check_subscript(node: ast.Subscript) -> ast.expr:
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    checked = [_check_index(index) for index in indices]
    index = ast.Tuple(checked, ast.Load()) if isinstance(node.slice, ast.Tuple) else checked[0]
    return ast.Subscript(_check_operand(node.value), index, ast.Load())


def _check_index(node: ast.expr) -> ast.expr:
    if _dotted_name(node) == "np.newaxis":
        return ast.Constant(None)
    if isinstance(node, ast.Constant) and node.value is ...:
        return node
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
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(MODULES.get(node.id, node.id))
    # awkward 0 had the functions of jagged arrays in a class
    return ".".join(part for part in parts[::-1] if part != "JaggedArray" or parts[-1] != "ak")


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
    module, _, function = name.rpartition(".")
    other = f"{'np' if module == 'ak' else 'ak'}.{function}"
    hint = did_you_mean(other if other in known else name, known, cutoff=0.8)
    return f"is not among the functions that formulas may use{hint}"


def refused(node: ast.expr, reason: str) -> ConfigError:
    """Return an error that quotes a part of a formula."""
    return ConfigError(f"`{quote(node)}` in a formula: {reason}")


def quote(node: ast.expr) -> str:
    """Return a part of a formula as text that fits into a message."""
    return shorten(ast.unparse(_quotable(node)))


def _quotable(node: Any) -> Any:
    """Return a copy of a tree with chains in Python's way, cut where the text is cut anyway."""
    if isinstance(node, list):
        return [_quotable(part) for part in node]
    if isinstance(node, ast.BinOp):
        node = _as_chain(node)
    if isinstance(node, Chain):
        result = _quotable(node.first)
        for op, operand in zip(node.ops[:MAX_QUOTE], node.operands, strict=False):
            result = ast.BinOp(result, op, _quotable(operand))
        return result
    if not isinstance(node, ast.AST):
        return node
    return type(node)(**{name: _quotable(part) for name, part in ast.iter_fields(node)})


def shorten(text: str) -> str:
    """Shorten a quotation to fit into a message."""
    return text if len(text) <= MAX_QUOTE else f"{text[: MAX_QUOTE - 3]}..."


# functions -> the position of an argument that is a type
_TYPE_ARGUMENTS = {"ak.values_astype": 1, "_pad": 3, "_repeat_pad": 2}
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
