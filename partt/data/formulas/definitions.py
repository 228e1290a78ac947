"""Variables defined by formulas: parsed, and checked for circular definitions."""

from collections.abc import Mapping

from partt.config import KeyFault
from partt.data.formulas.expressions import Formula, parse_formula
from partt.data.formulas.functions import NUMPY_FUNCTIONS
from partt.data.formulas.grammar import MODULES

MAX_CHAIN = 50


def check_definitions(definitions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the definitions; raise a KeyFault if one cannot be computed from branches."""
    for name in definitions:
        if not name.isidentifier() or name in MODULES or name in NUMPY_FUNCTIONS.functions:
            raise KeyFault((name,), "the name of a variable must be a single word that formulas can use")
    formulas = parse_definitions(definitions)
    chains: dict[str, int] = {}  # variable -> length of the chain of definitions that it starts
    for name in formulas:
        _measure_chain(name, formulas, chains, ())
    momenta = {name for name, formula in formulas.items() if formula.is_momenta}
    for name in momenta:
        if formulas[name].names & momenta:
            raise KeyFault((name,), "four-momenta cannot be defined by other four-momenta")
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
    """Parse definitions; `a: a` defines nothing and is left out, as in weaver."""
    return {name: parse_formula(text) for name, text in definitions.items() if text.strip() != name}
