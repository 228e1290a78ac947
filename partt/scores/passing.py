"""How many jets pass a cut, for any threshold: the basis of ROC curves and working points.

Axes: n jets of a sample, K thresholds or efficiencies.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Passing:
    """A sample of jets, sorted by discriminant; a jet passes a threshold if its value is not below it."""

    values: Array  # (n,) ascending
    weight_from: Floats  # (n + 1,): weight of values[k:]
    weight2_from: Floats  # (n + 1,): squared weights of values[k:]; the same array if all weights are 1

    @property
    def total(self) -> float:
        """The weight of all jets."""
        return float(self.weight_from[0])

    @property
    def num_effective(self) -> float:
        """The number of jets of weight 1 with the same relative fluctuation."""
        squares = float(self.weight2_from[0])
        return self.total**2 / squares if squares > 0 else 0.0

    def num_passing(self, thresholds: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Count the jets that pass (K,)."""
        return len(self.values) - np.searchsorted(self.values, thresholds, side="left")

    def efficiency(self, thresholds: npt.ArrayLike) -> Floats:
        """Return the fraction of the weight that passes (K,)."""
        first = np.searchsorted(self.values, thresholds, side="left")
        efficiency: Floats = self.weight_from[first] / self.total
        return efficiency

    def variance(self, thresholds: npt.ArrayLike) -> Floats:
        """Return the variance of the efficiency (K,).

        [(1 - eps)^2 sum_pass w^2 + eps^2 sum_fail w^2] / (sum w)^2: eps (1 - eps) / n if all weights are 1.
        """
        first = np.searchsorted(self.values, thresholds, side="left")
        efficiency = self.weight_from[first] / self.total
        passing = self.weight2_from[first]
        failing = self.weight2_from[0] - passing
        variance: Floats = ((1 - efficiency) ** 2 * passing + efficiency**2 * failing) / self.total**2
        return variance

    def threshold_for(self, efficiencies: npt.ArrayLike) -> Floats:
        """Return the highest threshold at which the efficiency reaches the given one (K,)."""
        levels = self._levels_from_above()
        found = np.searchsorted(levels, efficiencies, side="left")
        reached = self.values[len(self.values) - 1 - np.minimum(found, len(levels) - 1)]
        return np.asarray(reached, dtype=np.float64)

    def threshold_within(self, efficiencies: npt.ArrayLike) -> Floats:
        """Return the last threshold, from above, before the efficiency exceeds the given one (K,)."""
        levels = self._levels_from_above()
        exceeding = np.searchsorted(levels, efficiencies, side="right")  # the first jet too many
        below = self.values[len(self.values) - 1 - np.minimum(exceeding, len(levels) - 1)].astype(np.float64)
        return np.where(exceeding < len(levels), np.nextafter(below, np.inf), 0.0)

    def _levels_from_above(self) -> Floats:
        """Return the efficiencies (n,) at values[n - 1], ..., values[0]; of equal values, at the last only.

        Where negative weights make the efficiency fall, the largest so far is kept: the search is for the
        first threshold that reaches an efficiency.
        """
        levels = (self.weight_from[:-1] / self.total)[::-1]
        is_tied = np.zeros(len(levels), dtype=bool)  # equal to the next value below
        is_tied[:-1] = self.values[1:][::-1] == self.values[:-1][::-1]
        return np.maximum.accumulate(np.where(is_tied, -np.inf, levels))


def sort_sample(values: Array, weights: Array | None = None) -> Passing:
    """Sort a sample by discriminant."""
    if weights is None:
        counts = np.arange(len(values), -1, -1, dtype=np.float64)
        return Passing(np.sort(values), counts, counts)
    order = np.argsort(values, kind="stable")
    sorted_weights = weights[order].astype(np.float64)
    return Passing(values[order], _sums_from(sorted_weights), _sums_from(sorted_weights**2))


def area(signal: Passing, background: Passing) -> float:
    """Return the area under the ROC curve: how often signal is above background; ties count half."""
    above = signal.weight_from[np.searchsorted(signal.values, background.values, side="right")]
    above += signal.weight_from[np.searchsorted(signal.values, background.values, side="left")]
    weights = -np.diff(background.weight_from)
    return float(above @ weights) / (2 * signal.total * background.total)


def _sums_from(weights: Floats) -> Floats:
    """Return the sums of weights[k:] (n + 1,), added from the end, as for a ROC curve."""
    return np.concatenate([[0.0], np.cumsum(weights[::-1])])[::-1]
