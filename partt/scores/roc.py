"""ROC curves: background rejection at given signal efficiencies.

Axes: K signal efficiencies.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.scores.intervals import interval_at_fitted
from partt.scores.passing import Floats, Passing

# Efficiencies at which curves are drawn, denser close to 1.
GRID = np.concatenate(
    [np.arange(1, 99) / 100, [0.985, 0.99, 0.9925, 0.995, 0.9965, 0.9975, 0.9985, 0.999, 1.0]]
)


@dataclass(frozen=True, eq=False)
class RocPoints:
    """Points of a ROC curve: each at the highest threshold that reaches the requested signal efficiency."""

    asked: Floats  # signal efficiencies
    thresholds: Floats
    signal_efficiency: Floats
    background_efficiency: Floats
    background_low: Floats
    background_high: Floats
    num_passing: npt.NDArray[np.int64]  # background jets

    @property
    def is_finite(self) -> npt.NDArray[np.bool_]:
        """Where the rejection is finite: jets pass, and (negative weights) their weight is positive."""
        return (self.num_passing > 0) & (self.background_efficiency > 0)

    @property
    def rejection(self) -> Floats:
        """1 / background efficiency; infinite if no jet passes."""
        return invert(self.background_efficiency)

    @property
    def rejection_low(self) -> Floats:
        """The lower end of the 68 % interval; the limit if no jet passes."""
        return invert(self.background_high)

    @property
    def rejection_high(self) -> Floats:
        """The upper end of the 68 % interval."""
        return invert(self.background_low)


def roc_points(signal: Passing, background: Passing, efficiencies: npt.ArrayLike) -> RocPoints:
    """Return the points of the curve at given signal efficiencies; nothing is interpolated."""
    asked = np.asarray(efficiencies, dtype=np.float64)
    thresholds = signal.threshold_for(asked)
    value, low, high = interval_at_fitted(background, thresholds, signal, asked)
    return RocPoints(
        asked,
        thresholds,
        signal.efficiency(thresholds),
        value,
        low,
        high,
        background.num_passing(thresholds),
    )


def invert(efficiency: Floats) -> Floats:
    """Return 1 / efficiency; infinite for 0 (or less, possible with negative weights)."""
    is_positive = efficiency > 0
    return np.where(is_positive, 1 / np.where(is_positive, efficiency, 1.0), np.inf)
