"""Distributions of a discriminant in its log-odds, ln D / (1 - D): near 0 and 1, jets would share one bin.

Axes: n jets, B bins.
"""

from dataclasses import dataclass

import numpy as np

from partt.data.jagged import Array
from partt.scores.passing import Floats

NUM_BINS = 40
TAIL = 0.002  # of the jets of a sample, on either side, may share the outermost bin
LARGEST = 16.0  # log-odds of the largest float32 below 1


@dataclass(frozen=True, eq=False)
class LogOddsSpectrum:
    """Which fraction of signal and of background is in each bin; the outermost bins hold what is beyond."""

    edges: Floats  # (B + 1,)
    signal: Floats  # (B,), sums to 1
    background: Floats  # (B,), sums to 1


def log_odds(values: Array) -> Floats:
    """Return ln D / (1 - D), at most +-16."""
    inside = np.clip(values.astype(np.float64), 1e-12, 1 - 1e-12)
    found: Floats = np.clip(np.log(inside) - np.log1p(-inside), -LARGEST, LARGEST)
    return found


def log_odds_spectrum(
    signal: Array, background: Array, signal_weights: Array | None, background_weights: Array | None
) -> LogOddsSpectrum:
    """Return both distributions, in bins that hold nearly all jets of either."""
    samples = log_odds(signal), log_odds(background)
    ends = np.array([np.quantile(sample, [TAIL, 1 - TAIL]) for sample in samples])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    if high - low < 1e-3:
        low, high = low - 1, high + 1
    edges = np.linspace(low, high, NUM_BINS + 1)
    found = []
    for sample, weights in zip(samples, (signal_weights, background_weights), strict=True):
        counts = np.histogram(np.clip(sample, low, high), edges, weights=weights)[0].astype(np.float64)
        total = counts.sum()
        found.append(counts / total if total > 0 else counts)
    return LogOddsSpectrum(edges, *found)
