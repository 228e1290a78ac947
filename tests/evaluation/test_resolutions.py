"""Medians and 68 % widths: against numpy, closed forms, and weights as repetitions."""

import numpy as np
import pytest
from scipy.stats import norm

from partt.evaluation.resolutions import LEVELS, MAX_SINGLE, MIN_JETS, SortedSample


@pytest.mark.parametrize("num_jets", [15, 400, 5000])
@pytest.mark.parametrize("weighted", [False, True])
def test_quantiles_are_those_of_numpy(num_jets, weighted):
    random = np.random.default_rng(num_jets)
    values = random.gamma(2, size=num_jets)
    weights = random.uniform(0.5, 2, num_jets) if weighted else None
    found = SortedSample(values, weights).overall()
    low, median, high = np.quantile(values, LEVELS, weights=weights, method="inverted_cdf")
    assert found.median.value[0] == median
    assert found.width.value[0] == (high - low) / 2


def test_cells_are_samples_of_their_own():
    random = np.random.default_rng(0)
    values, cells = random.normal(size=4000), random.integers(-1, 5, 4000)
    weights = random.exponential(size=4000)
    found = SortedSample(values, weights).in_cells(cells, 6)
    for cell in range(5):
        own = cells == cell
        median = np.quantile(values[own], 0.5, weights=weights[own], method="inverted_cdf")
        assert found.median.value[cell] == median
        assert found.num_jets[cell] == np.count_nonzero(own)
    assert found.num_jets[5] == 0
    assert np.isnan([found.median.value[5], found.width.value[5], found.width.high[5]]).all()


def test_a_weight_is_a_repetition():
    random = np.random.default_rng(1)
    values, times = random.normal(size=500), random.integers(0, 4, 500)
    once = SortedSample(values, times.astype(np.float32)).overall()
    repeated = SortedSample(np.repeat(values, times), None).overall()
    assert once.median.value == repeated.median.value
    assert once.width.value == repeated.width.value


@pytest.mark.parametrize("num_jets", [MAX_SINGLE, 20 * MAX_SINGLE])
def test_errors_have_their_closed_forms(num_jets):
    """Of normal numbers: sqrt(p (1 - p) / n) / density, with the covariance of two quantiles for the width.

    A bootstrap error fluctuates: the mean over samples is compared.
    """
    samples = [SortedSample(np.random.default_rng(seed).normal(size=num_jets), None) for seed in range(12)]
    found = [sample.overall() for sample in samples]
    errors = np.mean(
        [[one.median.high - one.median.value, one.width.high - one.width.value] for one in found], axis=0
    )
    low, _, high = LEVELS
    density = norm.pdf(norm.ppf(low))
    variance = (low * (1 - low) + high * (1 - high) - 2 * low * (1 - high)) / density**2 / 4
    expected = np.sqrt([0.25 / norm.pdf(0) ** 2 / num_jets, variance / num_jets])
    np.testing.assert_allclose(errors[:, 0], expected, rtol=0.2)


def test_intervals_cover():
    """68 % of the intervals contain the true value, whichever way jets are drawn."""
    covered = []
    for seed in range(150):
        random = np.random.default_rng(seed)
        cells = np.repeat([0, 1], [300, 1500])
        found = SortedSample(random.normal(size=1800), None).in_cells(cells, 2)
        width = norm.ppf(LEVELS[2])
        covered.append(
            [
                (found.median.low <= 0) & (found.median.high >= 0),
                (found.width.low <= width) & (found.width.high >= width),
            ]
        )
    fractions = np.mean(covered, axis=0)
    assert (np.abs(fractions - 0.68) < 0.13).all(), fractions  # 0.038 is one standard deviation


@pytest.mark.parametrize(
    "weights",
    [np.zeros(100), -np.ones(100), np.tile([1.0, -1.0], 50), np.where(np.arange(100) == 3, 1e30, 1e-30)],
)
def test_no_result_without_enough_weight(weights):
    found = SortedSample(np.arange(100.0), weights).overall()
    assert np.isnan(found.median.value[0])
    assert found.num_jets[0] == 100


def test_few_jets_have_no_result():
    assert np.isnan(SortedSample(np.arange(MIN_JETS - 1.0), None).overall().width.value[0])
    assert SortedSample(np.arange(float(MIN_JETS)), None).overall().median.value[0] == 4
    assert np.isnan(SortedSample(np.empty(0), None).overall().median.value[0])
