"""Rejections, areas and thresholds: closed forms, scikit-learn, and cases worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score, roc_curve

from partt.scores.passing import area, sort_sample
from partt.scores.roc import roc_points
from toy_scores import gaussian_rejection, gaussian_scores


def discriminants(scores):
    return [
        sort_sample(scores.of(name).scores[1].astype(np.float64), scores.of(name).weights) for name in "SB"
    ]


@pytest.mark.parametrize("weights", [False, True])
def test_a_gaussian_toy_agrees_with_its_closed_form(weights):
    signal, background = discriminants(gaussian_scores(200_000, 2.0, seed=1, weights=weights))
    points = roc_points(signal, background, [0.3, 0.5, 0.8])
    truth = [gaussian_rejection(e, 2.0) for e in (0.3, 0.5, 0.8)]
    np.testing.assert_allclose(points.rejection, truth, rtol=0.06)
    pulls = (
        (points.background_efficiency - 1 / np.array(truth))
        / (points.background_high - points.background_low)
        * 2
    )
    assert (np.abs(pulls) < 3).all()
    assert area(signal, background) == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.002)


def test_a_case_worked_by_hand():
    # signal 0.9 0.8 0.7 0.2, background 0.85 0.7 0.6 0.1; passing means not below
    signal, background = (
        sort_sample(np.array([0.2, 0.9, 0.7, 0.8])),
        sort_sample(np.array([0.1, 0.6, 0.7, 0.85])),
    )
    points = roc_points(signal, background, [0.25, 0.5, 0.51, 0.75, 1.0])
    assert points.thresholds.tolist() == [0.9, 0.8, 0.7, 0.7, 0.2]
    assert points.rejection.tolist() == [np.inf, 4.0, 2.0, 2.0, 4 / 3]
    assert points.num_passing.tolist() == [0, 1, 2, 2, 3]
    # pairs won by the signal: 4 + 3 + (2 + tie) + 1 of 16
    assert area(signal, background) == (4 + 3 + 2.5 + 1) / 16


def test_equal_scores_reject_nothing():
    same = sort_sample(np.full(10, 0.5))
    points = roc_points(same, same, [0.1, 0.5])
    assert points.rejection.tolist() == [1.0, 1.0]
    assert points.signal_efficiency.tolist() == [1.0, 1.0]
    assert area(same, same) == 0.5


def sklearn_rejection(labels, values, weights, efficiency):
    fpr, tpr, thresholds = roc_curve(labels, values, sample_weight=weights, drop_intermediate=False)
    first = int(np.flatnonzero(tpr >= efficiency)[0])
    return (np.inf if fpr[first] == 0 else 1 / fpr[first]), thresholds[first]


samples = st.lists(st.integers(0, 12), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(
    samples, samples, st.sampled_from([0.1, 0.3, 0.5, 0.75, 0.99, 1.0]), st.integers(0, 2**32), st.booleans()
)
def test_small_cases_agree_with_scikit_learn(signal, background, efficiency, seed, weighted):
    values = np.array([*signal, *background]) / 12
    labels = np.array([1] * len(signal) + [0] * len(background))
    weights = np.random.default_rng(seed).integers(1, 5, len(values)).astype(float) if weighted else None
    parts = [
        sort_sample(values[labels == k], None if weights is None else weights[labels == k]) for k in (1, 0)
    ]
    points = roc_points(*parts, [efficiency])
    rejection, threshold = sklearn_rejection(labels, values, weights, efficiency)
    assert points.rejection[0] == pytest.approx(rejection, rel=1e-12)
    assert points.thresholds[0] == threshold
    assert area(*parts) == pytest.approx(roc_auc_score(labels, values, sample_weight=weights), abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(samples, samples, st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.9]))
def test_a_background_efficiency_is_not_exceeded(signal, background, efficiency):
    values = np.array([*signal, *background]) / 12
    labels = np.array([1] * len(signal) + [0] * len(background))
    fpr, tpr, _ = roc_curve(labels, values, drop_intermediate=False)
    last = int(np.flatnonzero(fpr <= efficiency)[-1])
    signal_sample, background_sample = sort_sample(values[labels == 1]), sort_sample(values[labels == 0])
    threshold = background_sample.threshold_within([efficiency])
    assert background_sample.efficiency(threshold)[0] == fpr[last]
    assert signal_sample.efficiency(threshold)[0] == pytest.approx(tpr[last])


def test_weights_equal_repetition():
    random = np.random.default_rng(3)
    values, weights = random.uniform(size=60).round(1), random.integers(1, 4, 60)
    other = random.uniform(size=50)
    weighted, repeated = sort_sample(values, weights), sort_sample(np.repeat(values, weights))
    background = sort_sample(other)
    for efficiency in (0.2, 0.5, 0.9):
        one, two = (roc_points(sample, background, [efficiency]) for sample in (weighted, repeated))
        assert one.thresholds == two.thresholds
        assert one.rejection == two.rejection
    assert area(weighted, background) == pytest.approx(area(repeated, background), abs=1e-12)
    assert area(background, weighted) == pytest.approx(area(background, repeated), abs=1e-12)


def test_negative_weights_keep_the_definition():
    # passing weight from above: 1, 0.5, 2.5 of 2.5
    signal = sort_sample(np.array([0.9, 0.8, 0.1]), np.array([1.0, -0.5, 2.0]))
    assert signal.threshold_for([0.4, 0.41]).tolist() == [0.9, 0.1]
