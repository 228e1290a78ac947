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
from partt.evaluation.metrics import present_classes
from partt.scores.passing import Floats

NUM_BLOCKS, MIN_BLOCKS = 256, 32  # of each class: for few classes, and at least
NUM_REPETITIONS = 200
EDGES_PER_SAMPLE, MIN_EDGES = 64, 16
FEW_CLASSES = 10
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
    # the mean over many classes is as well known from fewer blocks and bins of each
    most_blocks, num_edges = (
        max(least, most * FEW_CLASSES // max(num_classes, FEW_CLASSES))
        for least, most in ((MIN_BLOCKS, NUM_BLOCKS), (MIN_EDGES, EDGES_PER_SAMPLE))
    )
    right, total = np.zeros(NUM_REPETITIONS), np.zeros(NUM_REPETITIONS)
    drawn: dict[int, Floats] = {}  # true class -> (R, K), how often each block is taken
    for truth in present:
        jets = scores.jets[truth]
        num_blocks = min(most_blocks, len(jets))
        blocks = _blocks(jets, num_blocks)
        weights = jets.weights_or_ones()
        drawn[truth] = times = random.poisson(1.0, (NUM_REPETITIONS, num_blocks)).astype(np.float64)
        is_right = jets.scores.argmax(axis=0) == truth
        right_weight = times @ np.bincount(blocks, weights * is_right, minlength=num_blocks)
        weight = times @ np.bincount(blocks, weights, minlength=num_blocks)
        fraction = np.divide(right_weight, weight, out=np.zeros(NUM_REPETITIONS), where=weight > 0)
        right += fraction * weights.sum()
        total += np.where(weight > 0, weights.sum(), 0.0)  # without the class, if no block of it is taken
    area_sums, num_pairs = np.zeros(NUM_REPETITIONS), np.zeros(NUM_REPETITIONS)
    signals = [1] if num_classes == 2 and len(present) == 2 else present  # as in `mean_area`
    for first in range(0, len(signals), SCORES_AT_ONCE):
        some = signals[first : first + SCORES_AT_ONCE]
        edges = [_edges(scores, i, num_edges) for i in some]
        ends = np.cumsum([len(values) + 1 for values in edges])[:-1]
        own: dict[int, Floats] = {}  # score -> (R, B): how the jets of its class are distributed
        others = [np.zeros((NUM_REPETITIONS, len(values) + 1)) for values in edges]  # sum over other classes
        num_others = np.zeros((len(some), NUM_REPETITIONS))
        for j in present:
            parts = [
                _block_histograms(scores.jets[j], i, e, drawn[j].shape[1])
                for i, e in zip(some, edges, strict=True)
            ]
            found = np.split(drawn[j] @ np.concatenate(parts, axis=1), ends, axis=1)
            for position, (i, histogram) in enumerate(zip(some, found, strict=True)):
                share, is_known = _shares(histogram)
                if i == j:
                    own[i] = np.where(is_known[:, None], share, np.nan)
                else:
                    others[position] += share
                    num_others[position] += is_known
        for position, i in enumerate(some):
            is_known = ~np.isnan(own[i][:, 0])
            below = np.cumsum(others[position], axis=1) - others[position] / 2  # jets in one bin are ties
            sums = np.einsum("rb,rb->r", own[i], below)
            area_sums += np.where(is_known, sums, 0.0)
            num_pairs += np.where(is_known, num_others[position], 0.0)
    means = np.where(num_pairs > 0, area_sums / np.maximum(num_pairs, 1.0), np.nan)
    accuracies = np.where(total > 0, right / np.where(total > 0, total, 1.0), np.nan)
    return Spread(_deviation(accuracies), _deviation(means))


def _edges(scores: ScoresByClass, number: int, num_edges: int) -> npt.NDArray[np.float32]:
    """Return bin edges of a score: its quantiles for jets of its class, and for all other jets."""
    own = _some(scores.jets[number].scores[number])
    others = [_some(jets.scores[number]) for i, jets in enumerate(scores.jets) if i != number]
    levels = np.linspace(0, 1, num_edges)
    samples = [own, np.concatenate(others)] if others else [own]
    return np.unique(np.concatenate([np.quantile(sample, levels) for sample in samples if len(sample)]))


def _some(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return values[:: max(1, len(values) // EDGE_JETS)]


def _blocks(jets: ClassJets, num_blocks: int) -> npt.NDArray[np.int64]:
    """Return the block of each jet."""
    return np.arange(len(jets)) % num_blocks


def _block_histograms(
    jets: ClassJets, number: int, edges: npt.NDArray[np.float32], num_blocks: int
) -> Floats:
    """Return the weight (K, B) in each block and bin of a score."""
    num_bins = len(edges) + 1
    cells = _blocks(jets, num_blocks) * num_bins
    cells += np.searchsorted(edges, jets.scores[number], side="right")
    sums: Floats = np.bincount(cells, jets.weights, minlength=num_blocks * num_bins).astype(np.float64)
    return sums.reshape(num_blocks, num_bins)


def _shares(histogram: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return what share of each repetition's weight is in each bin (R, B), and where there is any weight."""
    totals = histogram.sum(axis=1)
    is_known = totals > 0
    return histogram * np.where(is_known, 1 / np.where(is_known, totals, 1.0), 0.0)[:, None], is_known


def _deviation(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else float("nan")
