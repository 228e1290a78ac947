"""68 % intervals have the right coverage."""

import numpy as np
import pytest
from scipy.stats import beta

from partt.evaluation.bootstrap import bootstrap
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.metrics import count_predictions, mean_area, pair_areas
from partt.scores.intervals import COVERAGE, TAIL, interval_at
from partt.scores.passing import sort_sample
from partt.scores.roc import roc_points
from toy_scores import gaussian_rejection, gaussian_scores, random_scores


def test_clopper_pearson_by_hand():
    sample = sort_sample(np.arange(10.0))
    value, low, high = (float(end[0]) for end in interval_at(sample, np.array([7.0])))
    tail = (1 - COVERAGE) / 2
    assert value == 0.3
    assert low == pytest.approx(beta.ppf(tail, 3, 8))
    assert high == pytest.approx(beta.ppf(1 - tail, 4, 7))


def test_nothing_or_everything_passing_has_one_open_end():
    sample = sort_sample(np.arange(100.0))
    value, low, high = interval_at(sample, np.array([1000.0, -1.0]))
    assert value.tolist() == [0, 1]
    assert low[0] == 0
    assert high[0] == pytest.approx(1.84 / 100, rel=0.02)
    assert high[1] == 1
    assert low[1] == pytest.approx(1 - 1.84 / 100, rel=0.002)


def test_equal_weights_give_the_interval_of_unweighted_jets():
    values = np.arange(50.0)
    plain, weighted = sort_sample(values), sort_sample(values, np.full(50, 3.0))
    for one, two in zip(
        interval_at(plain, np.array([40.0, 60])), interval_at(weighted, np.array([40.0, 60])), strict=True
    ):
        np.testing.assert_allclose(one, two)


@pytest.mark.parametrize(("num_signal", "weights"), [(20_000, False), (300, False), (300, True)])
def test_rejections_cover(num_signal, weights):
    """With few signal jets the threshold fluctuates more than the background that passes it."""
    truth = 1 / gaussian_rejection(0.5, 1.5)
    num_toys, covered, narrow = 500, 0, 0
    random = np.random.default_rng(5)
    for _ in range(num_toys):
        signal, background = random.normal(1.5, size=num_signal), random.normal(size=1500)
        weight = [random.exponential(size=len(x)) if weights else None for x in (signal, background)]
        samples = [sort_sample(x, w) for x, w in zip((signal, background), weight, strict=True)]
        points = roc_points(*samples, [0.5])
        covered += bool(points.background_low[0] <= truth <= points.background_high[0])
        _, low, high = interval_at(samples[1], points.thresholds)
        narrow += bool(low[0] <= truth <= high[0])
    assert 0.65 < covered / num_toys < 0.76  # 68 %, give or take 2 %; numbers of jets overcover
    if num_signal == 300:
        assert narrow / num_toys < 0.6  # the threshold's fluctuation is needed


@pytest.mark.parametrize(
    ("efficiency", "num_jets", "most"), [(0.99, 400, 0.8), (0.995, 300, 0.9), (0.995, 2000, 0.76)]
)
def test_rejections_at_high_efficiencies_cover(efficiency, num_jets, most):
    """Few signal jets are below the threshold: what it would be for other jets is the uncertainty.

    A shift of the threshold by a standard deviation, up and down alike, covers in 40 to 65 % of the cases.
    """
    truth = 1 / gaussian_rejection(efficiency, 3.0)
    random = np.random.default_rng(8)
    num_toys, inside = 400, 0
    for _ in range(num_toys):
        samples = sort_sample(random.normal(3.0, size=num_jets)), sort_sample(random.normal(size=num_jets))
        points = roc_points(*samples, [efficiency])
        inside += bool(points.background_low[0] <= truth <= points.background_high[0])
    assert 0.66 < inside / num_toys < most


def test_the_threshold_counts_on_each_side_by_itself():
    """99.5 % of 1,000 jets: five are below the threshold, and few background jets are above it.

    The true threshold is above the 993.29th of the 1000 jets in 16 % of all samples, and above the 997.72th in
    84 %: the efficiency at the k-th jet is beta-distributed with k and n + 1 - k.
    """
    positions = np.array([993.2885, 997.7154])
    np.testing.assert_allclose(beta.sf(0.995, positions, 1001 - positions), [TAIL, 1 - TAIL], atol=1e-5)
    signal = sort_sample(np.concatenate([[1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10], np.full(990, 50.0)]))
    background = sort_sample(np.repeat([0.5, 2.5, 5.5, 7.5, 20], [500, 400, 60, 20, 20]))
    points = roc_points(signal, background, [0.995])
    assert points.thresholds[0] == 6
    assert points.num_passing[0] == 40
    value, low, high = interval_at(background, points.thresholds)
    # passing jets at the threshold between 993 (8) and 994 jets (7), 7.71: 20; 997 (4) and 998 (3), 3.28: 100
    expected = [
        value[0] * np.exp(-np.hypot(np.log(value / low), np.log(40 / 20)))[0],
        value[0] * np.exp(np.hypot(np.log(high / value), np.log(100 / 40)))[0],
    ]
    assert [points.background_low[0], points.background_high[0]] == pytest.approx(expected)


def test_with_too_few_signal_jets_an_efficiency_has_no_upper_end():
    """The lowest of 100 jets is above the 0.5 % quantile in 61 % of all samples."""
    points = roc_points(sort_sample(np.arange(100.0) + 50), sort_sample(np.arange(100.0)), [0.995])
    assert points.background_efficiency[0] == 0.5
    assert points.background_high[0] == 1
    assert 0.4 < points.background_low[0] < 0.5


def test_limits_cover():
    """When no background jet passes, the limit is below the true rejection at least five times in six."""
    truth = gaussian_rejection(0.5, 2.5)
    random = np.random.default_rng(6)
    limits = []
    while len(limits) < 300:
        points = roc_points(
            sort_sample(random.normal(2.5, size=400)), sort_sample(random.normal(size=150)), [0.5]
        )
        if points.num_passing[0] == 0:
            limits.append(points.rejection_low[0])
    assert np.mean(np.array(limits) <= truth) > 0.84


@pytest.mark.parametrize("weights", [False, True])
def test_accuracy_and_area_cover(weights):
    big = gaussian_scores(400_000, 1.5, seed=0)
    truth = np.array([count_predictions(big).accuracy, mean_area(pair_areas(big))])
    num_toys, covered = 200, np.zeros(2)
    for seed in range(num_toys):
        toy = gaussian_scores(400, 1.5, seed=seed + 1, weights=weights)
        spread = bootstrap(toy, seed)
        found = np.array([count_predictions(toy).accuracy, mean_area(pair_areas(toy))])
        covered += np.abs(found - truth) <= [spread.accuracy, spread.area]
    assert (np.abs(covered / num_toys - COVERAGE) < 0.08).all()  # 2.4 standard deviations of 200 toys


def test_the_bootstrap_does_not_take_the_choice_of_classes_for_chance():
    """Many jets in a block, and one class easier than the other: the share of each class must stay fixed."""
    random = np.random.default_rng(7)
    labels = np.repeat([0, 1], 30_000)
    is_right = random.uniform(size=60_000) < np.where(labels == 0, 0.95, 0.5)
    signal = np.where(is_right, labels, 1 - labels) * 0.8 + 0.1
    scores = scores_from_arrays(["B", "S"], np.stack([1 - signal, signal], axis=1), labels)
    expected = np.sqrt(0.95 * 0.05 + 0.5 * 0.5) / 2 / np.sqrt(30_000)
    assert bootstrap(scores).accuracy == pytest.approx(expected, rel=0.15)


def test_the_bootstrap_keeps_correlations_between_classes():
    """The bootstrap of one sample gives the spread over many independent samples."""
    classes = [f"class {i}" for i in range(5)]
    samples = [scores_from_arrays(classes, *random_scores(800, seed, classes)) for seed in range(40)]
    true_spread = np.std([mean_area(pair_areas(sample)) for sample in samples], ddof=1)
    estimate = np.mean([bootstrap(sample).area for sample in samples[:10]])
    assert estimate == pytest.approx(true_spread, rel=0.3)
