"""Median and half the central 68 % width of a quantity in cells, such as bins, with bootstrap intervals.

A quantile is the smallest value at which the weight of the jets up to it reaches the level (numpy calls it
inverted_cdf): a jet of weight 2 counts as two jets.

Intervals come from a Poisson bootstrap: each jet is taken a Poisson(1) number of times. In large cells,
blocks of jets are taken, with their values in bins of equal numbers of jets, so that ten million jets cost
little more than sorting them.

Axes: n jets, N cells, K blocks, B bins, R repetitions.
"""

from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.evaluation.bootstrap import NUM_BLOCKS
from partt.evaluation.jets import ROUNDING
from partt.scores.intervals import COVERAGE, Interval
from partt.scores.passing import Floats

LEVELS = ((1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2)  # the width of a normal distribution is its sigma
MIN_JETS = 10  # effective number; with fewer, there is no result
MAX_SINGLE = 512  # jets of a cell that are taken one by one
NUM_BINS = 128
NUM_REPETITIONS = 400


@dataclass(frozen=True, eq=False)
class Resolution:
    """Median and half the central 68 % width, of any shape; NaN where there are too few jets."""

    num_jets: npt.NDArray[np.int64]
    median: Interval
    width: Interval

    def reshape(self, *shape: int) -> Self:
        """Return the same numbers in another shape."""
        return type(self)(
            self.num_jets.reshape(shape),
            Interval(*(values.reshape(shape) for values in self.median)),
            Interval(*(values.reshape(shape) for values in self.width)),
        )

    @classmethod
    def stacked(cls, parts: "list[Resolution]") -> "Resolution":
        """Join along the first axis."""
        return cls(
            np.concatenate([part.num_jets for part in parts]),
            Interval(*map(np.concatenate, zip(*(part.median for part in parts), strict=True))),
            Interval(*map(np.concatenate, zip(*(part.width for part in parts), strict=True))),
        )


class SortedSample:
    """Values of jets, sorted once, then divided into cells in any number of ways."""

    def __init__(self, values: Floats, weights: Array | None) -> None:
        self._values = values  # (n,) finite
        self._weights = weights
        self._order = np.argsort(values, kind="stable")

    def in_cells(self, cells: npt.NDArray[np.int64], num_cells: int) -> Resolution:
        """Return the resolution (N,) in each cell; a jet whose cell (n,) is negative is in none."""
        small = np.int16 if num_cells < 2**15 else np.int32  # these are sorted faster
        own = cells[self._order].astype(small)
        places = np.argsort(own, kind="stable")
        starts = np.searchsorted(own[places], np.arange(num_cells + 1))
        found = np.full((num_cells, 4), np.nan)
        for cell in range(num_cells):
            found[cell] = self._numbers(self._order[places[starts[cell] : starts[cell + 1]]])
        median, median_error, width, width_error = found.T
        return Resolution(
            np.diff(starts),
            Interval(median, median - median_error, median + median_error),
            Interval(width, width - width_error, width + width_error),
        )

    def overall(self) -> Resolution:
        """Return the resolution (1,) of all jets."""
        return self.in_cells(np.zeros(len(self._values), dtype=np.int64), 1)

    def _numbers(self, jets: npt.NDArray[np.int64]) -> tuple[float, float, float, float]:
        """Return median, its error, width and its error of some jets (n,), sorted by value."""
        values = self._values[jets]
        weights = np.ones(len(jets)) if self._weights is None else self._weights[jets].astype(np.float64)
        total, squares = float(weights.sum()), float((weights**2).sum())
        if total <= ROUNDING * float(np.abs(weights).sum()) or total**2 < MIN_JETS * squares:
            return (np.nan,) * 4
        low, median, high = values[_reached(np.cumsum(weights)[None])[0]]
        draws = self._one_by_one(values, weights) if len(jets) <= MAX_SINGLE else self._in_blocks(
            values, weights, jets
        )  # fmt: skip
        return (
            median,
            _half_width(draws[:, 1]),
            (high - low) / 2,
            _half_width((draws[:, 2] - draws[:, 0]) / 2),
        )

    def _one_by_one(self, values: Floats, weights: Floats) -> Floats:
        """Return the quantiles (R, 3) of repetitions that take single jets."""
        sums = np.cumsum(_times_taken()[:, : len(values)] * weights, axis=1)
        draws: Floats = values[_reached(sums)]
        draws[sums[:, -1] <= 0] = np.nan
        return draws

    def _in_blocks(self, values: Floats, weights: Floats, jets: npt.NDArray[np.int64]) -> Floats:
        """Return the quantiles (R, 3) of repetitions that take blocks of jets, interpolated in bins.

        The block of a jet follows from its place in the files, so that it has nothing to do with its value.
        """
        bins = np.arange(len(values)) * NUM_BINS // len(values)
        blocks = jets % NUM_BLOCKS
        cells = np.bincount(blocks * NUM_BINS + bins, weights, minlength=NUM_BLOCKS * NUM_BINS)
        sums = np.cumsum(_times_taken()[:, :NUM_BLOCKS] @ cells.reshape(NUM_BLOCKS, NUM_BINS), axis=1)
        edges = values[np.minimum(np.arange(NUM_BINS + 1) * len(values) // NUM_BINS, len(values) - 1)]
        found = _reached(sums)  # (R, 3)
        upper = np.take_along_axis(sums, found, axis=1)
        lower = np.take_along_axis(np.pad(sums, ((0, 0), (1, 0))), found, axis=1)
        rises = upper > lower
        wanted = sums[:, -1:] * np.array(LEVELS)
        share = np.clip((wanted - lower) / np.where(rises, upper - lower, 1.0), 0.0, 1.0)
        draws: Floats = edges[found] + share * (edges[found + 1] - edges[found])
        draws[sums[:, -1] <= 0] = np.nan
        return draws


@cache
def _times_taken() -> Floats:
    """Return how often each jet or block is taken, the same for all samples (R, MAX_SINGLE)."""
    return np.random.default_rng(0).poisson(1.0, (NUM_REPETITIONS, MAX_SINGLE)).astype(np.float64)


def _reached(sums: Floats) -> npt.NDArray[np.int64]:
    """Return where sums of weights (R, n) first reach the levels of the total (R, 3)."""
    highest = np.maximum.accumulate(sums, axis=1)  # negative weights make sums fall
    found = [(highest < level * sums[:, -1:]).sum(axis=1) for level in LEVELS]
    places: npt.NDArray[np.int64] = np.minimum(np.stack(found, axis=1), sums.shape[1] - 1)
    return places


def _half_width(draws: Floats) -> float:
    """Return half the central 68 % of repetitions: their standard deviation, but without the tails."""
    known = draws[~np.isnan(draws)]
    if len(known) < NUM_REPETITIONS / 2:
        return float("nan")
    low, high = np.quantile(known, (LEVELS[0], LEVELS[2]))
    return float(high - low) / 2
