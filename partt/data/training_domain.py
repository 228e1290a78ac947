"""The training domain: which values a tagger was trained on, and how many of other jets are outside of it.

Axes: N jets, T particles.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from partt.config import Record
from partt.data.jagged import Array, Jagged

if TYPE_CHECKING:  # evaluation, which reads counts of jets outside, does without torch
    from partt.data.config.data_config import DataConfig
    from partt.data.variables import Variables

QUANTILES = (0.0, 0.001, 0.01, 0.16, 0.5, 0.84, 0.99, 0.999, 1.0)
LOW, MEDIAN, HIGH = 1, 4, 7  # positions of 0.1 %, 50 % and 99.9 %
JET_PT, JET_ETA, JET_MASS = "jet pT", "jet eta", "jet mass"  # of the sum of the particles
BEAM_ENERGY = 7000.0  # GeV: no jet of the LHC has more, so a larger pT is in MeV
FEW = 0.05  # a larger fraction outside of 99.8 % of the training values is worth a warning

Quantiles = Annotated[list[float], Field(min_length=len(QUANTILES), max_length=len(QUANTILES))]


class Domain(Record):
    """Quantiles of the training jets: of pT, eta and mass of jets, and of every input."""

    num_jets: int
    quantiles: Annotated[dict[str, Quantiles], Field(max_length=10_000)]


@dataclass(frozen=True)
class Excess:
    """Finite values of a variable: how many there are, and how many outside of the domain."""

    num_values: int
    num_outside: int
    smallest: float
    largest: float

    @property
    def fraction(self) -> float:
        """The fraction outside."""
        return self.num_outside / max(self.num_values, 1)


def domain_values(config: "DataConfig", variables: "Variables") -> dict[str, Array]:
    """Return the values of jets that a domain is about, by name; NaN and infinite values are left out."""
    values: dict[str, Array] = {}
    if config.collections and config.momenta is not None:
        columns = [variables[variable.name] for variable in config.momenta.variables]
        values |= _of_jets([column for column in columns if isinstance(column, Jagged)], variables.num_jets)
    for name in dict.fromkeys(variable.name for group in config.groups for variable in group.variables):
        column = variables[name]
        values[name] = column.contents if isinstance(column, Jagged) else np.asarray(column)
    return {name: found[np.isfinite(found)].astype(np.float64) for name, found in values.items()}


def measure_domain(parts: Iterable[Mapping[str, Array]], num_jets: int) -> Domain:
    """Return the quantiles of values of several files."""
    found = list(parts)
    names = dict.fromkeys(name for part in found for name in part)
    joined = {name: np.concatenate([part[name] for part in found]) for name in names}
    return Domain(
        num_jets=num_jets,
        quantiles={
            name: np.quantile(values, QUANTILES).tolist() for name, values in joined.items() if len(values)
        },
    )


def count_outside(domain: Domain, values: Mapping[str, Array]) -> dict[str, Excess]:
    """Count the values outside of 99.8 % of the training values."""
    counts = {}
    for name, quantiles in domain.quantiles.items():
        found = values.get(name, np.empty(0))
        if len(found):
            outside = np.count_nonzero((found < quantiles[LOW]) | (found > quantiles[HIGH]))
            counts[name] = Excess(len(found), int(outside), float(found.min()), float(found.max()))
    return counts


def add_up(first: Mapping[str, Excess], second: Mapping[str, Excess]) -> dict[str, Excess]:
    """Add the counts of further jets."""
    total = dict(first)
    for name, found in second.items():
        before = total.get(name, Excess(0, 0, np.inf, -np.inf))
        total[name] = Excess(
            before.num_values + found.num_values,
            before.num_outside + found.num_outside,
            min(before.smallest, found.smallest),
            max(before.largest, found.largest),
        )
    return total


def warnings_of(domain: Domain, counts: Mapping[str, Excess]) -> list[str]:
    """Say which variables leave the domain, and by how much; the worst comes first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1].fraction)
    return [_warning(name, found, domain.quantiles[name]) for name, found in ordered if found.fraction > FEW]


def _warning(name: str, found: Excess, quantiles: list[float]) -> str:
    what = "jets" if name in {JET_PT, JET_ETA, JET_MASS} else "values"
    in_mev = name == JET_PT and found.smallest > BEAM_ENERGY > quantiles[HIGH]
    return (
        f"{name}: {100 * found.fraction:.1f} % of {found.num_values:,} {what} are outside "
        f"{quantiles[LOW]:.4g} to {quantiles[HIGH]:.4g}, the range of 99.8 % of the training {what} (here "
        f"{found.smallest:.4g} to {found.largest:.4g}{'; these look like MeV' if in_mev else ''})"
    )


def _of_jets(momenta: list[Jagged], num_jets: int) -> dict[str, Array]:
    """Return pT, eta and mass of the sum of the particles of each jet (N,)."""
    if len(momenta) < 4:
        return {}
    jet = np.repeat(np.arange(num_jets), momenta[0].lengths)
    px, py, pz, energy = (np.bincount(jet, column.contents, num_jets) for column in momenta)
    with np.errstate(all="ignore"):
        pt = np.hypot(px, py)
        mass = np.sqrt(np.maximum(energy**2 - pt**2 - pz**2, 0))
        return {JET_PT: pt[pt > 0], JET_ETA: np.arcsinh(pz / pt)[pt > 0], JET_MASS: mass[pt > 0]}
