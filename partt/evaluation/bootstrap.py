"""Uncertainty of accuracy and AUC: a Poisson bootstrap of blocks of jets, on binned scores.

The jets of a class are divided into blocks; a repetition takes each block a Poisson(1) number of times. All
scores of a jet are resampled together, which keeps the correlation between the curves of different classes;
and since scores are binned once, ten million jets cost little more than their histograms. The weight of each
class is fixed: how many jets of a class a sample has is a choice, not a fluctuation.

Axes: C classes, K blocks, B bins of a score, R repetitions.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.evaluation.jets import ClassJets, ScoresByClass
from partt.evaluation.metrics import mean_area, present_classes
from partt.scores.passing import Floats

NUM_BLOCKS = 256
NUM_REPETITIONS = 200
EDGES_PER_SAMPLE = 64
SCORES_AT_ONCE = 10  # bounds the memory of many classes
EDGE_JETS = 20_000  # of each class, used to choose the bins


@dataclass(frozen=True)
class Spread:
    """Standard deviations over the repetitions."""

    accuracy: float
    area: float


def bootstrap(scores: ScoresByClass, seed: int = 0) -> Spread:
    """Return the uncertainties of accuracy and mean AUC."""
    random = np.random.default_rng(seed)
    num_classes = len(scores.class_names)
    present = present_classes(scores)
    right = np.zeros(NUM_REPETITIONS)
    total = 0.0
    drawn: dict[int, Floats] = {}  # true class -> (R, K), how often each block is taken
    for truth in present:
        jets = scores.jets[truth]
        num_blocks = min(NUM_BLOCKS, len(jets))
        blocks = _blocks(jets)
        weights = jets.weights_or_ones()
        drawn[truth] = times = random.poisson(1.0, (NUM_REPETITIONS, num_blocks)).astype(np.float64)
        is_right = jets.scores.argmax(axis=0) == truth
        right_weight = times @ np.bincount(blocks, weights * is_right, minlength=num_blocks)
        weight = times @ np.bincount(blocks, weights, minlength=num_blocks)
        fraction = np.divide(right_weight, weight, out=np.full(NUM_REPETITIONS, np.nan), where=weight > 0)
        right += fraction * weights.sum()
        total += float(weights.sum())
    areas = np.full((NUM_REPETITIONS, num_classes, num_classes), np.nan)
    for first in range(0, len(present), SCORES_AT_ONCE):
        some = present[first : first + SCORES_AT_ONCE]
        edges = [_edges(scores, i) for i in some]
        ends = np.cumsum([len(values) + 1 for values in edges])[:-1]
        histograms: dict[int, list[Floats]] = {}  # true class -> (R, B) of some scores
        for j in present:
            parts = [_block_histograms(scores.jets[j], i, own) for i, own in zip(some, edges, strict=True)]
            histograms[j] = np.split(drawn[j] @ np.concatenate(parts, axis=1), ends, axis=1)
        for position, i in enumerate(some):
            for j in present:
                if i != j:
                    areas[:, i, j] = _areas(histograms[i][position], histograms[j][position])
    means = np.array([mean_area(repetition) for repetition in areas])
    return Spread(_deviation(right / total) if total > 0 else float("nan"), _deviation(means))


def _edges(scores: ScoresByClass, number: int) -> npt.NDArray[np.float32]:
    """Return bin edges of a score: its quantiles for jets of its class, and for all other jets."""
    own = _some(scores.jets[number].scores[number])
    others = [_some(jets.scores[number]) for i, jets in enumerate(scores.jets) if i != number]
    levels = np.linspace(0, 1, EDGES_PER_SAMPLE)
    samples = [own, np.concatenate(others)] if others else [own]
    return np.unique(np.concatenate([np.quantile(sample, levels) for sample in samples if len(sample)]))


def _some(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return values[:: max(1, len(values) // EDGE_JETS)]


def _blocks(jets: ClassJets) -> npt.NDArray[np.int64]:
    """Return the block of each jet."""
    return np.arange(len(jets)) % min(NUM_BLOCKS, len(jets))


def _block_histograms(jets: ClassJets, number: int, edges: npt.NDArray[np.float32]) -> Floats:
    """Return the weight (K, B) in each block and bin of a score."""
    blocks, weights = _blocks(jets), jets.weights_or_ones()
    num_bins = len(edges) + 1
    cells = blocks * num_bins + np.searchsorted(edges, jets.scores[number], side="right")
    num_blocks = int(blocks.max()) + 1
    sums: Floats = np.bincount(cells, weights, minlength=num_blocks * num_bins).astype(np.float64)
    return sums.reshape(num_blocks, num_bins)


def _areas(own: Floats, other: Floats) -> Floats:
    """Return the areas (R,) under the curves of binned scores (R, B); jets in one bin are ties."""
    below = np.cumsum(other, axis=1) - other / 2
    totals = own.sum(axis=1), other.sum(axis=1)
    is_known = (totals[0] > 0) & (totals[1] > 0)
    sums = (own * below).sum(axis=1)
    return np.where(is_known, sums / np.where(is_known, totals[0] * totals[1], 1.0), np.nan)


def _deviation(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else float("nan")
