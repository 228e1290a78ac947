"""The formula language of data configs: Python expressions, parsed and interpreted node by node.

Nothing is compiled or evaluated by Python. Syntax is refused unless `grammar` lists it, and a function unless
`functions` does.
"""

import ast
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from partt.config import did_you_mean
from partt.data.formulas.column_functions import MAX_VALUES, LengthsDisagreeError, Value, num_values
from partt.data.formulas.functions import NUMPY_FUNCTIONS, FunctionTable
from partt.data.formulas.grammar import (
    Chain,
    check_depth,
    check_syntax,
    function_name,
    quote,
    refused,
    shorten,
)
from partt.data.jagged import Column, Table
from partt.errors import ConfigError, ParttError

MAX_LENGTH = 65_536
MAX_INLINED = 10_000  # parts of a formula with the definitions of its four-momenta


@dataclass(frozen=True)
class Formula:
    """A parsed formula, and the branches and variables that it uses."""

    text: str
    names: frozenset[str] = field(compare=False)
    tree: ast.expr = field(compare=False, repr=False)

    @property
    def is_momenta(self) -> bool:
        """Whether the formula gives four-momenta, which only other formulas can use."""
        return _gives_momenta(self.tree)


def _gives_momenta(node: ast.expr) -> bool:
    match node:
        case Chain():
            parts = [node.first, *node.operands]
            return all(isinstance(op, _OF_MOMENTA) for op in node.ops) and any(map(_gives_momenta, parts))
        case ast.Subscript():
            return _gives_momenta(node.value)
        case ast.UnaryOp():
            return _gives_momenta(node.operand)
        case ast.Call() if function_name(node) in {"np.sum", "ak.sum"} and node.args:
            return _gives_momenta(node.args[0])
    return function_name(node).startswith("_p4_from_")


_OF_MOMENTA = (ast.Add, ast.Sub, ast.Mult, ast.Div)


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
    except (MemoryError, RecursionError) as error:
        raise ConfigError("not a valid formula: too long or nested too deeply for Python's parser") from error
    except ValueError as error:
        raise ConfigError(f"not a valid formula: {error}") from error
    check_depth(tree)
    tree = check_syntax(tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Formula(text, frozenset(names - NUMPY_FUNCTIONS.functions.keys()), tree)


def inline(formula: Formula, definitions: Mapping[str, Formula]) -> Formula:
    """Replace names in a formula by the formulas that define them."""
    if formula.names.isdisjoint(definitions):
        return formula

    tree = _inlined(formula.tree, definitions, itertools.count())
    names = formula.names - definitions.keys()
    names = names.union(*(definitions[name].names for name in formula.names & definitions.keys()))
    return Formula(formula.text, names, tree)


def _inlined(node: Any, definitions: Mapping[str, Formula], parts: Iterator[int]) -> Any:
    """Return a copy of a tree with names replaced; definitions that double each other must not explode."""
    if isinstance(node, list):
        return [_inlined(part, definitions, parts) for part in node]
    if not isinstance(node, ast.AST):
        return node
    if next(parts) > MAX_INLINED:
        raise ConfigError(
            f"the formula has more than {MAX_INLINED} parts, definitions of four-momenta included"
        )
    if isinstance(node, ast.Name) and node.id in definitions:
        return _inlined(definitions[node.id].tree, {}, parts)
    return type(node)(**{name: _inlined(part, definitions, parts) for name, part in ast.iter_fields(node)})


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
                return self.values_of(node.elts)
            case ast.Attribute():
                return self.call(node, [], self.functions.attribute, self.value(node.value), node.attr)
            case ast.Subscript():
                return self.apply(node, self.functions.item, node.value, node.slice)
            case ast.UnaryOp():
                return self.apply(node, self.operator(node.op), node.operand)
            case Chain():
                return self.chain(node)
            case ast.Compare():
                return self.apply(node, self.operator(node.ops[0]), node.left, node.comparators[0])
            case ast.Call():
                options = {keyword.arg or "": self.value(keyword.value) for keyword in node.keywords}
                return self.apply(node, self.function(function_name(node)), *node.args, **options)
            case ast.Slice():
                return slice(*[bound and self.value(bound) for bound in (node.lower, node.upper, node.step)])
            case ast.Tuple():
                return tuple(self.value(element) for element in node.elts)
        raise refused(node, "is not part of the formula language")

    def values_of(self, nodes: list[ast.expr]) -> list[Value]:
        """Return the values of a list, which are all in memory at once."""
        values, total = [], 0
        for node in nodes:
            values.append(self.value(node))
            total += num_values(values[-1])
            if total > MAX_VALUES:
                raise ConfigError(f"a list in a formula has more than {MAX_VALUES} values")
        return values

    def chain(self, node: Chain) -> Value:
        value = self.value(node.first)
        for count, (op, operand) in enumerate(zip(node.ops, node.operands, strict=True)):
            arguments = [node.until(count), operand]
            result = node.until(count + 1)
            value = self.call(result, arguments, self.operator(op), value, self.value(operand))
        return value

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

    def operator(self, kind: ast.AST) -> Callable[..., Value]:
        if type(kind) not in self.functions.operators:
            raise ConfigError(f"the operator {type(kind).__name__} is not available here")
        return self.functions.operators[type(kind)]

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
            left, right = (quote(arguments[position]) for position in error.positions)
            raise error.naming(left, right) from error
        except (ParttError, MemoryError, RecursionError):
            raise
        except Exception as error:  # numpy and awkward raise anything for arguments that they do not expect
            reason = (str(error).splitlines() or ["failed"])[0]
            raise ConfigError(f"cannot compute `{quote(node)}`: {reason}") from error
