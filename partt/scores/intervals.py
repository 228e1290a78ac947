"""68 % intervals of efficiencies: from the jets that pass, and from the fluctuation of the threshold."""

from typing import NamedTuple

import numpy as np
from scipy.special import bdtrik
from scipy.stats import binom, norm

from partt.scores.passing import Floats, Passing

MAX_LOGARITHM = 500.0  # of a ratio; its exponential must not overflow
TAIL = float(norm.cdf(-1))  # 15.87 % on either side
COVERAGE = 1 - 2 * TAIL  # 68.27 %


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


def interval_at_fitted(sample: Passing, thresholds: Floats, fitted_on: Passing, asked: Floats) -> Interval:
    """Return the same for thresholds that were chosen to give the `asked` efficiencies on another sample.

    The true threshold is between order statistics of that sample, whatever its distribution is: the number of
    its n jets that pass the true threshold is binomial (n, asked). The efficiencies at the positions between
    jets that the true threshold is above in 16 % and 84 % of all samples are the ends due to the threshold.
    Each is added, in quadrature and in logarithms, to the end on its side due to the jets that pass. Where a
    position is beyond all n jets, nothing says how far below the lowest of them the true threshold is: then
    the upper end is 1.
    """
    least, most = (sample.efficiency(ends) for ends in _threshold_ends(fitted_on, thresholds, asked))
    value, low, high = interval_at(sample, thresholds)
    lower = value * np.exp(-np.hypot(_log_ratio(value, low), _log_ratio(value, least)))
    upper = np.where(
        value > 0,
        value * np.exp(np.hypot(_log_ratio(high, value), _log_ratio(most, value))),
        np.hypot(high, np.maximum(most, 0.0)),  # nothing passes: there is no logarithm
    )
    has_lower = np.minimum(np.minimum(value, low), least) > 0
    return Interval(value, np.where(has_lower, lower, 0.0), np.where(most < 1, np.minimum(upper, 1.0), 1.0))


def _threshold_ends(fitted_on: Passing, thresholds: Floats, asked: Floats) -> tuple[Floats, Floats]:
    """Return the tightest and the loosest threshold (K,) that the sample allows."""
    efficiency, variance = fitted_on.efficiency(thresholds), fitted_on.variance(thresholds)
    is_open = (variance > 0) & (efficiency > 0) & (efficiency < 1)
    num_jets = np.where(
        is_open, efficiency * (1 - efficiency) / np.where(is_open, variance, 1.0), fitted_on.num_effective
    )
    num_jets = np.maximum(np.round(num_jets), 1.0)
    tightest = _between_jets(fitted_on, num_jets, _position(TAIL, num_jets, asked))
    loosest = _between_jets(fitted_on, num_jets, _position(1 - TAIL, num_jets, asked))
    return np.maximum(tightest, thresholds), np.minimum(loosest, thresholds)


def _position(probability: float, num_jets: Floats, asked: Floats) -> Floats:
    """Return the position (K,) among n jets, from above, that the true threshold is above so often.

    It is above the k-th jet if less than k jets pass it. Binomial probabilities are continued to numbers k
    that are not whole, as for order statistics between two jets.
    """
    below = bdtrik(probability, num_jets, asked)
    return np.where(binom.cdf(0, num_jets, asked) < probability, below + 1.0, 0.0)


def _between_jets(sample: Passing, num_jets: Floats, position: Floats) -> Floats:
    """Return the threshold (K,) at a position; infinite before the first jet and after the last one."""
    above, below = np.floor(position), np.ceil(position)
    ends = [sample.threshold_for(np.clip(place, 1.0, num_jets) / num_jets) for place in (above, below)]
    threshold = ends[0] + (position - above) * (ends[1] - ends[0])
    return np.where(position < 1, np.inf, np.where(position > num_jets, -np.inf, threshold))


def _log_ratio(larger: Floats, smaller: Floats) -> Floats:
    """Return ln(larger / smaller), between 0 and a bound; 0 where one is not positive."""
    is_known = (larger > 0) & (smaller > 0)
    logarithm = np.log(np.where(is_known, larger, 1.0) / np.where(is_known, smaller, 1.0))
    return np.clip(logarithm, 0.0, MAX_LOGARITHM)
