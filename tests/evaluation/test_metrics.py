"""Accuracy, AUC, confusion matrix, calibration."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, confusion_matrix, roc_auc_score

from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.metrics import (
    CALIBRATION_BINS,
    count_predictions,
    mean_area,
    pair_areas,
    score_histograms,
)
from toy_scores import CLASSES, random_scores


@pytest.fixture(scope="module")
def sample():
    probabilities, labels = random_scores(3000)
    return probabilities, labels, np.random.default_rng(1).integers(0, 4, 3000)


def test_they_equal_those_of_scikit_learn(sample):
    probabilities, labels, _ = sample
    scores = scores_from_arrays(CLASSES, probabilities, labels)
    found = count_predictions(scores)
    exact = probabilities.astype(np.float64)
    exact /= exact.sum(axis=1, keepdims=True)
    assert found.accuracy == accuracy_score(labels, probabilities.argmax(axis=1))
    assert mean_area(pair_areas(scores)) == pytest.approx(
        roc_auc_score(labels, exact, multi_class="ovo", average="macro"), abs=1e-6
    )
    np.testing.assert_allclose(
        found.normalised, confusion_matrix(labels, probabilities.argmax(axis=1), normalize="true")
    )


def test_two_classes_have_the_binary_area(sample):
    signal = sample[0][:, 0]
    labels = (sample[1] == 0).astype(int)
    scores = scores_from_arrays(["B", "S"], np.stack([1 - signal, signal], axis=1), labels)
    assert mean_area(pair_areas(scores)) == pytest.approx(roc_auc_score(labels, signal), abs=1e-12)


def test_weights_equal_repetition(sample):
    probabilities, labels, weights = sample
    weighted = scores_from_arrays(CLASSES, probabilities, labels, weights)
    repeated = scores_from_arrays(
        CLASSES, np.repeat(probabilities, weights, axis=0), np.repeat(labels, weights)
    )
    one, two = count_predictions(weighted), count_predictions(repeated)
    assert one.accuracy == pytest.approx(two.accuracy, abs=1e-12)
    np.testing.assert_allclose(one.confusion, two.confusion)
    assert one.calibration.expected_error == pytest.approx(two.calibration.expected_error, abs=1e-9)
    np.testing.assert_allclose(pair_areas(weighted), pair_areas(repeated), atol=1e-12)
    np.testing.assert_allclose(score_histograms(weighted), score_histograms(repeated))


def test_calibration_equals_that_of_scikit_learn(sample):
    probabilities, labels, _ = sample
    found = count_predictions(scores_from_arrays(CLASSES, probabilities, labels)).calibration
    is_right = probabilities.argmax(axis=1) == labels
    right, score = calibration_curve(is_right, probabilities.max(axis=1), n_bins=CALIBRATION_BINS)
    is_filled = found.share > 0
    np.testing.assert_allclose(found.accuracy.value[is_filled], right, atol=1e-6)
    np.testing.assert_allclose(found.mean_score[is_filled], score, atol=1e-6)
    assert found.expected_error == pytest.approx(
        np.sum(found.share[is_filled] * np.abs(right - score)), abs=1e-6
    )


def test_calibration_by_hand():
    # two jets at 0.9, one of them right; two at 0.6, both right
    scores = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    found = count_predictions(scores_from_arrays(["a", "b"], scores, [0, 1, 0, 0])).calibration
    assert found.expected_error == pytest.approx((2 * 0.4 + 2 * 0.4) / 4)


def test_a_class_without_jets_is_left_out_of_the_mean(sample):
    probabilities, labels, _ = sample
    keep = labels != 2
    scores = scores_from_arrays(CLASSES, probabilities[keep], labels[keep])
    areas = pair_areas(scores)
    assert np.isnan(areas).sum() == 9 - 2
    assert mean_area(areas) == pytest.approx((areas[0, 1] + areas[1, 0]) / 2)
    only_one = scores_from_arrays(CLASSES, probabilities[labels == 1], labels[labels == 1])
    assert np.isnan(mean_area(pair_areas(only_one)))
