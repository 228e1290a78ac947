"""The formula language of data configs: Python expressions, parsed and interpreted node by node.

Nothing is compiled or evaluated by Python. Syntax is refused unless `grammar` lists it, and a function unless
`functions` does.
"""

import ast
import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from partt.config import did_you_mean
from partt.data.formulas.column_functions import LengthsDisagreeError, Value
from partt.data.formulas.functions import NUMPY_FUNCTIONS, FunctionTable
from partt.data.formulas.grammar import check_depth, check_syntax, function_name, refused, shorten
from partt.data.jagged import Column, Table
from partt.errors import ConfigError, ParttError

MAX_LENGTH = 4096


@dataclass(frozen=True)
class Formula:
    """A parsed formula, and the branches and variables that it uses."""

    text: str
    names: frozenset[str] = field(compare=False)
    tree: ast.expr = field(compare=False, repr=False)

    @property
    def is_momenta(self) -> bool:
        """Whether the formula gives four-momenta, which only other formulas can use."""
        return function_name(self.tree).startswith("_p4_from_")


# --- parsing --------------------------------------------------------------------------------------------


@lru_cache(maxsize=20_000)  # a config parses each formula several times
def parse_formula(text: str) -> Formula:
    """Parse a formula; whatever is not part of the language is a ConfigError."""
    if len(text) > MAX_LENGTH:
        raise ConfigError(f"the formula is longer than {MAX_LENGTH} characters")
    if not text.strip():
        raise ConfigError("the formula is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's hints about odd code, which is refused below
            tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ConfigError(f"not a valid formula: {error.msg} in {shorten(text.strip())!r}") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise ConfigError(f"not a valid formula: {error}") from error
    check_depth(tree)
    tree = check_syntax(tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Formula(text, frozenset(names - NUMPY_FUNCTIONS.functions.keys()), tree)


def inline(formula: Formula, definitions: Mapping[str, Formula]) -> Formula:
    """Replace names in a formula by the formulas that define them."""
    if formula.names.isdisjoint(definitions):
        return formula

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return definitions[node.id].tree if node.id in definitions else node

    tree = Replace().visit(copy.deepcopy(formula.tree))
    names = formula.names - definitions.keys()
    names = names.union(*(definitions[name].names for name in formula.names & definitions.keys()))
    return Formula(formula.text, names, tree)


# --- evaluating -----------------------------------------------------------------------------------------


def evaluate(formula: Formula, table: Table, functions: FunctionTable = NUMPY_FUNCTIONS) -> Column:
    """Compute a formula; infinities and NaN are valid results.

    The functions of another backend (torch, for export) give its type of column.
    """
    walker = _Walker(table, functions)
    with np.errstate(all="ignore"):
        value = walker.value(formula.tree)
        column: Column = walker.call(formula.tree, [], functions.finish, value, table)
    return column


@dataclass(frozen=True)
class _Walker:
    """Evaluates the nodes of a checked formula."""

    table: Table
    functions: FunctionTable

    def value(self, node: ast.expr) -> Value:  # noqa: PLR0911 - one line for each kind of node
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.column(node.id)
            case ast.List():
                return [self.value(element) for element in node.elts]
            case ast.Attribute():
                return self.call(node, [], self.functions.attribute, self.value(node.value), node.attr)
            case ast.Subscript():
                return self.apply(node, self.functions.item, node.value, node.slice)
            case ast.UnaryOp():
                return self.apply(node, self.functions.operators[type(node.op)], node.operand)
            case ast.BinOp():
                return self.apply(node, self.functions.operators[type(node.op)], node.left, node.right)
            case ast.Compare():
                kind = type(node.ops[0])
                return self.apply(node, self.functions.operators[kind], node.left, node.comparators[0])
            case ast.Call():
                options = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
                return self.apply(node, self.function(function_name(node)), *node.args, **options)
            case ast.Slice():
                return slice(*[bound and self.value(bound) for bound in (node.lower, node.upper, node.step)])
            case ast.Tuple():
                return tuple(self.value(element) for element in node.elts)
        raise refused(node, "is not part of the formula language")

    def column(self, name: str) -> Column:
        try:
            return self.table[name]
        except KeyError as error:
            hint = did_you_mean(name, list(self.table))
            raise ConfigError(f"neither a branch nor a variable: {name!r}{hint}") from error

    def function(self, name: str) -> Callable[..., Value]:
        if name not in self.functions.functions:
            raise ConfigError(f"{name} is not available here")
        return self.functions.functions[name]

    def apply(
        self, node: ast.expr, function: Callable[..., Value], *arguments: ast.expr, **options: Value
    ) -> Value:
        values = [self.value(argument) for argument in arguments]
        return self.call(node, list(arguments), function, *values, **options)

    def call(
        self,
        node: ast.expr,
        arguments: list[ast.expr],
        function: Callable[..., Value],
        *values: Value,
        **options: Value,
    ) -> Value:
        """Call a function; its errors become messages that quote the formula."""
        try:
            return function(*values, **options)
        except LengthsDisagreeError as error:
            left, right = (shorten(ast.unparse(arguments[position])) for position in error.positions)
            raise error.naming(left, right) from error
        except (ParttError, MemoryError, RecursionError):
            raise
        except Exception as error:  # numpy and awkward raise anything for arguments that they do not expect
            reason = (str(error).splitlines() or ["failed"])[0]
            raise ConfigError(f"cannot compute `{shorten(ast.unparse(node))}`: {reason}") from error
