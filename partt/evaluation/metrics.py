"""Accuracy, AUC, confusion matrix and calibration.

Axes: C classes, B bins.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.evaluation.jets import ClassJets, ScoresByClass
from partt.scores.intervals import Interval, interval_in_bins
from partt.scores.passing import Floats, area, sort_sample

CALIBRATION_BINS = 15
SCORE_BINS = 40
BLOCK = 2**18  # jets processed at a time


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often the class with the highest score is right, in bins of that score."""

    edges: Floats  # (B + 1,)
    share: Floats  # (B,): of the jets' weight
    mean_score: Floats  # (B,), NaN in empty bins
    accuracy: Interval  # (B,) each, NaN in empty bins
    expected_error: float  # ECE: mean over jets of |accuracy - score| of their bin


@dataclass(frozen=True, eq=False)
class Predictions:
    """Confusion matrix and calibration of the predicted class: the one with the highest score."""

    confusion: Floats  # (C, C): weight of true class by predicted class
    calibration: Calibration

    @property
    def accuracy(self) -> float:
        """The weighted fraction of jets whose predicted class is the true one."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def normalised(self) -> Floats:
        """The confusion matrix with rows that add up to 1; NaN for a class without a weight."""
        sums = self.confusion.sum(axis=1, keepdims=True)
        return np.where(sums > 0, self.confusion / np.where(sums > 0, sums, 1.0), np.nan)


def count_predictions(scores: ScoresByClass) -> Predictions:
    """Count which class has the highest score, and how often that is right, for classes with a weight."""
    num_classes = len(scores.class_names)
    confusion = np.zeros((num_classes, num_classes))
    sums = np.zeros((4, CALIBRATION_BINS))  # weight, weight * score, weight if right, weight^2
    squares_right = np.zeros(CALIBRATION_BINS)
    for truth in present_classes(scores):
        jets = scores.jets[truth]
        for first in range(0, len(jets), BLOCK):
            block = jets.scores[:, first : first + BLOCK]
            weights = _block_weights(jets, first)
            predicted = block.argmax(axis=0)
            confusion[truth] += np.bincount(predicted, weights, minlength=num_classes)
            highest = block.max(axis=0)
            bins = np.minimum((highest * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
            is_right = predicted == truth
            for row, values in enumerate((weights, weights * highest, weights * is_right, weights**2)):
                sums[row] += np.bincount(bins, values, minlength=CALIBRATION_BINS)
            squares_right += np.bincount(bins, weights**2 * is_right, minlength=CALIBRATION_BINS)
    return Predictions(confusion, _calibration(sums, squares_right))


def _block_weights(jets: ClassJets, first: int) -> Floats:
    size = min(BLOCK, len(jets) - first)
    return np.ones(size) if jets.weights is None else jets.weights[first : first + size].astype(np.float64)


def _calibration(sums: Floats, squares_right: Floats) -> Calibration:
    weight, weighted_score, right, squares = sums
    accuracy = interval_in_bins(weight, right, squares, squares_right)
    is_filled = ~np.isnan(accuracy.value)
    mean_score = np.divide(weighted_score, weight, out=np.full_like(weight, np.nan), where=is_filled)
    gaps = np.where(is_filled, np.abs(accuracy.value - mean_score) * weight, 0.0)
    total = weight.sum()
    return Calibration(
        edges=np.linspace(0, 1, len(weight) + 1),
        share=weight / total,
        mean_score=mean_score,
        accuracy=accuracy,
        expected_error=float(gaps.sum() / total),
    )


def present_classes(scores: ScoresByClass) -> list[int]:
    """Return the classes whose jets have a positive total weight."""
    return [number for number, jets in enumerate(scores.jets) if jets.total_weight > 0]


def pair_areas(scores: ScoresByClass) -> Floats:
    """Return the area (C, C) under the ROC curve of score i on jets of i and j; NaN if one has no jets."""
    num_classes = len(scores.class_names)
    areas = np.full((num_classes, num_classes), np.nan)
    present = present_classes(scores)
    for i in present:
        own = sort_sample(scores.jets[i].scores[i], scores.jets[i].weights)
        for j in present:
            if j != i:
                areas[i, j] = area(own, sort_sample(scores.jets[j].scores[i], scores.jets[j].weights))
    return areas


def mean_area(areas: npt.NDArray[np.float64]) -> float:
    """Return the mean over ordered pairs (C, C) of classes that have jets; of two classes, the second's.

    NaN if fewer than two classes have jets.
    """
    if areas.shape == (2, 2):
        return float(areas[1, 0])
    known = areas[~np.isnan(areas)]
    return float(known.mean()) if len(known) else float("nan")


def score_histograms(scores: ScoresByClass) -> Floats:
    """Return histograms (C, C, B): at [j, i] the density of score i (0 to 1) for jets of true class j."""
    num_classes = len(scores.class_names)
    found = np.zeros((num_classes, num_classes, SCORE_BINS))
    for truth, jets in enumerate(scores.jets):
        if jets.total_weight <= 0:
            continue
        counts = np.zeros(num_classes * SCORE_BINS)
        for first in range(0, len(jets), BLOCK):
            block = jets.scores[:, first : first + BLOCK]
            cells = np.minimum((block * SCORE_BINS).astype(np.int64), SCORE_BINS - 1)
            cells += SCORE_BINS * np.arange(num_classes)[:, None]
            weights = None
            if jets.weights is not None:
                weights = np.broadcast_to(_block_weights(jets, first), cells.shape).ravel()
            counts += np.bincount(cells.ravel(), weights, minlength=len(counts))
        found[truth] = counts.reshape(num_classes, SCORE_BINS) * (SCORE_BINS / jets.total_weight)
    return found
