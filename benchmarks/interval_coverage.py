"""How often the 68 % intervals of rejections contain the true rejection, in toy experiments.

Log-odds of signal and background are Gaussians, so that the true rejection is known. Beside the intervals of
partt stand those of a bootstrap of signal and background jets (its 16 % and 84 % quantiles).

usage: python benchmarks/interval_coverage.py [--toys N] [--json FILE]
"""

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.stats import norm

from partt.scores.intervals import TAIL
from partt.scores.passing import Passing, sort_sample
from partt.scores.roc import roc_points

EFFICIENCIES = (0.5, 0.99, 0.995)
JETS = ((300, 300), (300, 3000), (1000, 1000), (3000, 3000), (10_000, 10_000))  # signal, background
REPETITIONS = 200  # of the bootstrap


def bootstrap_interval(
    signal: Passing, background: Passing, efficiency: float, random: np.random.Generator
) -> tuple[float, float]:
    """Return the quantiles of the background efficiency over resampled jets.

    The rank, in the sample, of the k-th of n resampled jets follows from the k-th of n uniform numbers.
    """
    num_jets = len(signal.values)
    rank = int(np.ceil(efficiency * num_jets - 1e-9))  # from the top
    uniform = random.beta(rank, num_jets - rank + 1, REPETITIONS)
    ranks = np.minimum((uniform * num_jets).astype(np.int64), num_jets - 1)
    efficiencies = background.efficiency(signal.values[::-1][ranks])
    drawn = random.binomial(len(background.values), efficiencies) / len(background.values)
    low, high = np.quantile(drawn, [TAIL, 1 - TAIL])
    return float(low), float(high)


def coverage(
    num_signal: int, num_background: int, efficiency: float, distance: float, num_toys: int
) -> dict[str, float]:
    """Return how often the true background efficiency is inside, below and above the intervals."""
    random = np.random.default_rng([num_signal, num_background, round(1000 * efficiency)])
    true = float(norm.sf(norm.isf(efficiency) + distance))
    ends = np.empty((2, num_toys, 2))
    for toy in range(num_toys):
        signal = sort_sample(random.normal(distance, size=num_signal))
        background = sort_sample(random.normal(size=num_background))
        points = roc_points(signal, background, [efficiency])
        ends[0, toy] = points.background_low[0], points.background_high[0]
        ends[1, toy] = bootstrap_interval(signal, background, efficiency, random)
    inside = ((ends[..., 0] <= true) & (true <= ends[..., 1])).mean(axis=1)
    return {
        "signal_efficiency": efficiency,
        "signal_jets": num_signal,
        "background_jets": num_background,
        "background_jets_expected": round(true * num_background, 2),
        "coverage": round(float(inside[0]), 4),
        "true_rejection_above": round(float((true < ends[0, :, 0]).mean()), 4),
        "true_rejection_below": round(float((true > ends[0, :, 1]).mean()), 4),
        "coverage_of_bootstrap": round(float(inside[1]), 4),
    }


def main() -> None:
    """Print a table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--toys", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for efficiency in EFFICIENCIES:
        for num_signal, num_background in JETS:
            for distance in (1.5, 2.5) if efficiency < 0.9 else (3.0, 4.5):
                row = coverage(num_signal, num_background, efficiency, distance, options.toys)
                print(*row.values(), flush=True)
                rows.append(row)
    if options.json:
        options.json.write_text(json.dumps({"toys": options.toys, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
