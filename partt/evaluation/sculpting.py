"""Mass sculpting: how a cut on the discriminant changes the background's mass spectrum.

Axes: B bins of mass.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.scores.passing import Floats

NUM_DRAWS = 200
MIN_PASSING = 10  # jets; with fewer, there is no spectrum to compare


@dataclass(frozen=True, eq=False)
class Sculpting:
    """The spectrum before and after a cut, and the distance between the two."""

    observer: str
    edges: Floats  # (B + 1,)
    before: Floats  # (B,), sums to 1
    after: Floats  # (B,), sums to 1
    num_passing: int
    distance: float  # Jensen-Shannon distance, base 2: 0 equal, 1 without overlap
    distance_by_chance: float  # mean distance of as many jets drawn from the spectrum before


def mass_sculpting(
    observer: str, masses: Array, passed: npt.NDArray[np.bool_], weights: Array | None, edges: Floats
) -> Sculpting | None:
    """Compare the spectra of passing and of all jets; None if too few pass, or a bin is negative."""
    before = np.histogram(masses, edges, weights=weights)[0].astype(np.float64)
    chosen = weights[passed] if weights is not None else None
    after = np.histogram(masses[passed], edges, weights=chosen)[0].astype(np.float64)
    num_passing = int(np.count_nonzero(passed))
    if (
        num_passing < MIN_PASSING
        or (before < 0).any()
        or (after < 0).any()
        or not (before.sum() and after.sum())
    ):
        return None
    before /= before.sum()
    after /= after.sum()
    num_effective = num_passing if chosen is None else float(chosen.sum()) ** 2 / float((chosen**2).sum())
    draws = np.random.default_rng(0).multinomial(max(1, round(num_effective)), before, NUM_DRAWS)
    by_chance = [_distance(before, draw / draw.sum()) for draw in draws]
    return Sculpting(
        observer, edges, before, after, num_passing, _distance(before, after), float(np.mean(by_chance))
    )


def _distance(p: Floats, q: Floats) -> float:
    from scipy.spatial.distance import jensenshannon  # noqa: PLC0415 - slow to import

    return float(jensenshannon(p, q, base=2))
