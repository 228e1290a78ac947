"""Variables defined by formulas: parsed, and checked for circular definitions."""

from collections.abc import Mapping

from partt.config import KeyFault
from partt.data.formulas.expressions import Formula, inline, parse_formula
from partt.data.formulas.functions import NUMPY_FUNCTIONS
from partt.data.formulas.grammar import MODULES
from partt.errors import ConfigError

MAX_CHAIN = 50


def check_definitions(definitions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the definitions; raise a KeyFault if one cannot be computed from branches."""
    for name in definitions:
        if not name.isidentifier() or name in MODULES or name in NUMPY_FUNCTIONS.functions:
            raise KeyFault((name,), "the name of a variable must be a single word that formulas can use")
    formulas = _parse(definitions)
    chains: dict[str, int] = {}  # variable -> length of the chain of definitions that it starts
    for name in formulas:
        _measure_chain(name, formulas, chains, ())
    parse_definitions(definitions)
    return definitions


def _measure_chain(
    name: str, formulas: Mapping[str, Formula], chains: dict[str, int], above: tuple[str, ...]
) -> int:
    if name in above:
        cycle = " -> ".join([*above[above.index(name) :], name])
        raise KeyFault((name,), f"has a circular definition: {cycle}; give one of them another name")
    if len(above) > MAX_CHAIN:
        raise KeyFault((above[0],), f"more than {MAX_CHAIN} definitions depend on each other")
    if name in formulas and name not in chains:
        below = [
            _measure_chain(other, formulas, chains, (*above, name)) for other in sorted(formulas[name].names)
        ]
        chains[name] = 1 + max(below, default=0)
        if chains[name] > MAX_CHAIN:
            raise KeyFault((name,), f"more than {MAX_CHAIN} definitions depend on each other")
    return chains.get(name, 0)


def parse_definitions(definitions: Mapping[str, str]) -> dict[str, Formula]:
    """Parse definitions; `a: a` defines nothing and is left out, as in weaver.

    Four-momenta are not columns, so other formulas get their definition instead of their name.
    """
    formulas = _parse(definitions)
    resolved: dict[str, Formula] = {}
    for name in formulas:
        _resolve_momenta(name, formulas, resolved, ())
    return {name: resolved[name] for name in formulas}


def _parse(definitions: Mapping[str, str]) -> dict[str, Formula]:
    return {name: parse_formula(text) for name, text in definitions.items() if text.strip() != name}


def _resolve_momenta(
    name: str, formulas: Mapping[str, Formula], resolved: dict[str, Formula], above: tuple[str, ...]
) -> Formula:
    if name not in resolved:
        below = [other for other in sorted(formulas[name].names) if other in formulas and other not in above]
        found = {other: _resolve_momenta(other, formulas, resolved, (*above, name)) for other in below}
        momenta = {other: formula for other, formula in found.items() if formula.is_momenta}
        try:
            resolved[name] = inline(formulas[name], momenta)
        except ConfigError as error:
            raise KeyFault((name,), str(error)) from error
    return resolved[name]
