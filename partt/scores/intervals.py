"""68 % intervals of efficiencies: from the jets that pass, and from the fluctuation of the threshold."""

from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from partt.scores.passing import Floats, Passing

MAX_LOGARITHM = 500.0  # of a change; with negative weights it may be anything, and its exponential overflow
COVERAGE = float(norm.cdf(1) - norm.cdf(-1))  # 68.27 %


class Interval(NamedTuple):
    """Efficiencies and the ends of their intervals, (K,) each."""

    value: Floats
    low: Floats
    high: Floats


def efficiency_interval(efficiency: Floats, variance: Floats, num_effective: float | Floats) -> Interval:
    """Return Clopper-Pearson intervals of efficiencies with given variances.

    The variance gives the number of jets of weight 1 for which it would be binomial:
    eps (1 - eps) / variance. Where it is 0, nothing or everything passes; then it is `num_effective`.
    """
    from hist.intervals import clopper_pearson_interval  # noqa: PLC0415 - takes seconds to import

    inside = np.clip(efficiency, 0.0, 1.0)  # with negative weights it may be outside
    is_open = (variance > 0) & (inside > 0) & (inside < 1)
    num_jets = np.where(is_open, inside * (1 - inside) / np.where(is_open, variance, 1.0), num_effective)
    is_known = num_jets > 0
    num_jets = np.where(is_known, num_jets, 1.0)
    low, high = clopper_pearson_interval(inside * num_jets, num_jets, COVERAGE)
    return Interval(efficiency, np.where(is_known, low, 0.0), np.where(is_known, high, 1.0))


def interval_in_bins(total: Floats, passing: Floats, squares: Floats, squares_passing: Floats) -> Interval:
    """Return the efficiencies of bins from sums of weights and of squared weights; NaN in empty bins."""
    is_filled = (squares > 0) & (total > 0)
    safe = np.where(is_filled, total, 1.0)
    value = passing / safe
    variance = ((1 - value) ** 2 * squares_passing + value**2 * (squares - squares_passing)) / safe**2
    interval = efficiency_interval(value, variance, safe**2 / np.where(is_filled, squares, 1.0))
    return Interval(*(np.where(is_filled, values, np.nan) for values in interval))


def interval_at(sample: Passing, thresholds: Floats) -> Interval:
    """Return the efficiencies at given thresholds, with intervals from the jets that pass."""
    return efficiency_interval(
        sample.efficiency(thresholds), sample.variance(thresholds), sample.num_effective
    )


def interval_at_fitted(sample: Passing, thresholds: Floats, fitted_on: Passing) -> Interval:
    """Return the same for thresholds that were chosen to give an efficiency on another sample.

    The thresholds fluctuate with that sample: the change of the efficiency for one standard deviation up and
    down is added in quadrature, in logarithms, so that both ends stay positive.
    """
    wanted, deviation = fitted_on.efficiency(thresholds), np.sqrt(fitted_on.variance(thresholds))
    least, most = (
        sample.efficiency(fitted_on.threshold_for(np.clip(wanted + shift, 0.0, 1.0)))
        for shift in (-deviation, deviation)
    )
    value, low, high = interval_at(sample, thresholds)
    passes = value > 0
    safe, safe_low = np.where(passes, value, 1.0), np.where(passes & (low > 0), low, 1.0)
    change = np.minimum(np.abs(most - least) / 2 / safe, MAX_LOGARITHM)
    lower = np.where(passes & (low > 0), value * np.exp(-np.hypot(np.log(safe / safe_low), change)), 0.0)
    upper = np.where(
        passes,
        value * np.exp(np.hypot(np.log(np.maximum(high, safe) / safe), change)),
        np.hypot(high, np.maximum(most, 0.0)),  # nothing passes: there is no logarithm
    )
    return Interval(value, lower, np.minimum(upper, 1.0))
