"""Numbers of regressions: worked out by hand, closed forms of a toy, and what is left out."""

import numpy as np
import pytest
from toy_regressions import MASS, PT, RESOLUTION, regression_table

import partt
from partt.errors import ConfigError, DataError
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.resolutions import LEVELS
from partt.model.tasks import Task
from partt.scores.intervals import COVERAGE
from toy_scores import CLASSES

VALUE = Task(name="x", kind="value", target="x")
FACTOR = Task(name="m", kind="value", target="f", factor_of="mass")


def only(columns, *tasks, weights=None):
    """Return predictions without classes."""
    num_jets = len(next(iter(columns.values())))
    return scores_from_arrays(
        (), np.empty((num_jets, 0)), np.zeros(num_jets), weights, columns, regressions=tasks
    )


def with_classes(num_jets, *tasks, weights=None, **options):
    table = regression_table(num_jets, **options)
    probabilities = np.stack([table[f"score_{name}"] for name in CLASSES], axis=1)
    labels = np.argmax([table[f"label_{name}"] for name in CLASSES], axis=0)
    observers = {name: table[name] for name in table if not name.startswith(("score_", "label_"))}
    return scores_from_arrays(CLASSES, probabilities, labels, weights, observers, regressions=tasks)


def bias_and_width(response, at=0):
    return response.resolution.median.value[at] - 1, response.resolution.width.value[at]


def test_numbers_by_hand():
    """Ten jets with responses 0.1, ..., 1: half of the weight is reached at 0.5, 15.9 % at 0.2, 84.1 % at 0.9."""
    true = np.full(10, 2.0)
    found = partt.evaluate(only({"x": true * np.arange(1, 11) / 10, "true_x": true}, VALUE)).main.regressions[
        "x"
    ]
    assert bias_and_width(found.prediction) == pytest.approx((-0.5, 0.35))
    assert found.num_jets == 10
    assert not found.left_out
    assert found.baselines == {}
    assert found.coverage is None
    assert found.pulls is None


def test_a_factor_is_compared_in_the_unit_of_its_variable():
    random = np.random.default_rng(3)
    mass, true = random.uniform(50, 150, 400), random.uniform(60, 140, 400)
    soft_drop = true * random.normal(1.02, 0.1, 400)
    columns = {"m": 0.9 * true / mass, "true_f": true / mass, "mass": mass, "soft": soft_drop}
    found = partt.evaluate(only(columns, FACTOR), baselines={"f": ["soft"]})
    (regression,) = found.main.regressions.values()
    assert bias_and_width(regression.prediction) == pytest.approx((-0.1, 0), abs=1e-12)
    assert list(regression.baselines) == ["mass", "soft"]
    for name, values in (("mass", mass), ("soft", soft_drop)):
        low, median, high = np.quantile(values / true, LEVELS, method="inverted_cdf")
        assert bias_and_width(regression.baselines[name]) == pytest.approx((median - 1, (high - low) / 2))
    (target,) = found.targets
    assert target.title == "f × mass"
    assert [predictor.title for predictor in target.predictors] == ["model", "mass", "soft"]
    spectrum, _ = np.histogram(0.9 * true, regression.plan.value_edges)
    np.testing.assert_allclose(regression.prediction.spectrum[0], spectrum / 400)
    counts, *_ = np.histogram2d(true, mass, [regression.plan.value_edges] * 2)
    np.testing.assert_array_equal(regression.baselines["mass"].against_true, counts)


def test_a_toy_has_its_closed_form():
    """The response is 1 + 0.08 x a normal number, of all classes and in all bins; widths and quantiles are right."""
    found = partt.evaluate(with_classes(8000, MASS, PT), bins={"jet_pt": [500, 700, 1000]}).main
    mass, pt = found.regressions["mass"], found.regressions["pt"]
    for resolution in (mass.prediction.resolution, mass.prediction.by["jet_pt"].resolution):
        np.testing.assert_allclose(resolution.median.value, 1, atol=0.01)
        np.testing.assert_allclose(resolution.width.value, RESOLUTION, rtol=0.08)
    assert mass.left_out == {"true value is not known": 160}
    assert mass.groups == ("all jets", *CLASSES)
    assert mass.coverage.expected == COVERAGE
    np.testing.assert_allclose(mass.coverage.inside.value, COVERAGE, atol=0.02)
    np.testing.assert_allclose(mass.pulls.resolution.width.value, 1, rtol=0.08)
    np.testing.assert_allclose(pt.coverage.quantiles, [0.16, 0.5, 0.84])
    np.testing.assert_allclose(pt.coverage.below.value, np.tile([0.16, 0.5, 0.84], (4, 1)), atol=0.03)
    assert pt.coverage.expected == pytest.approx(0.68)
    np.testing.assert_allclose(pt.coverage.inside_by["jet_pt"][1].value, 0.68, atol=0.03)
    assert list(mass.by_discriminant) == ["Hbb vs QCD", "Tbl vs QCD"]
    assert mass.prediction.by_highest_score.resolution.num_jets[0].sum() == 7840


def test_classes_and_bins_are_samples_of_their_own():
    """Against numpy, jet by jet."""
    scores = with_classes(3000, MASS, weights=np.random.default_rng(2).exponential(size=3000))
    found = partt.evaluate(scores, bins={"jet_eta": [-2, 0, 1]}).main.regressions["mass"].prediction
    for number, jets in enumerate(scores.jets):
        true = jets.observers["true_mass_factor"].astype(np.float64)
        response = jets.observers["mass"] / true
        for place, (low, high) in enumerate([(-2, 0), (0, 1)]):
            own = np.isfinite(true) & (jets.observers["jet_eta"] >= low) & (jets.observers["jet_eta"] < high)
            expected = np.quantile(response[own], 0.5, weights=jets.weights[own], method="inverted_cdf")
            binned = found.by["jet_eta"].resolution
            assert binned.median.value[1 + number, place] == pytest.approx(expected, rel=1e-6)
            assert binned.num_jets[1 + number, place] == np.count_nonzero(own)


def test_a_weight_is_a_repetition():
    random = np.random.default_rng(4)
    columns = {name: random.uniform(1, 2, 300) for name in ("mass", "mass_low", "mass_high", "jet_mass")}
    columns["true_mass_factor"] = random.uniform(1, 2, 300)
    times = random.integers(1, 4, 300)
    repeated = {name: np.repeat(values, times) for name, values in columns.items()}
    one, two = (
        partt.evaluate(scores).main.regressions["mass"]
        for scores in (only(columns, MASS, weights=times), only(repeated, MASS))
    )
    assert one.prediction.resolution.median.value == two.prediction.resolution.median.value
    assert (
        one.baselines["jet_mass"].resolution.width.value == two.baselines["jet_mass"].resolution.width.value
    )
    np.testing.assert_allclose(one.coverage.inside.value, two.coverage.inside.value)
    np.testing.assert_allclose(one.pulls.histogram, two.pulls.histogram)


def test_targets_around_zero_have_residuals():
    random = np.random.default_rng(5)
    true = random.normal(size=500)
    columns = {"x": true + 0.25 + 0.1 * random.normal(size=500), "true_x": true}
    found = partt.evaluate(only(columns, VALUE))
    regression = found.main.regressions["x"]
    assert not regression.plan.is_ratio
    expected = np.quantile(columns["x"] - true, 0.5, method="inverted_cdf")
    assert regression.prediction.resolution.median.value[0] == pytest.approx(expected)
    (row, *_) = found.regression_tables[0].rows
    assert row.biases[0].value == pytest.approx(expected)
    assert any("residuals (prediction - true value) replace responses" in note for note in found.main.notes)


def test_what_is_not_known_is_left_out_and_counted():
    true = np.full(400, 2.0)
    predicted = true.copy()
    true[:7], true[7], true[8:10] = np.nan, np.inf, (0.0, -1.0)
    predicted[10:15] = (np.nan, np.inf, -np.inf, np.nan, np.nan)
    found = partt.evaluate(only({"x": predicted, "true_x": true}, VALUE)).main
    assert found.regressions["x"].left_out == {
        "true value is not known": 8,
        "true value is not positive": 2,
        "prediction is not finite": 5,
    }
    assert found.regressions["x"].num_jets == 385
    assert "x: 8 of 400 jets left out: true value is not known" in found.notes
    nothing = partt.evaluate(only({"x": predicted, "true_x": np.full(400, np.nan)}, VALUE)).main
    assert nothing.regressions == {}
    assert nothing.notes == ("x: no result, because no jet has a true value and a finite prediction",)


def test_models_are_compared_by_target():
    """Under other names, side by side; the baseline is shown once."""
    renamed = MASS.model_copy(update={"name": "pt"})  # its own columns, compared with the mass
    models = {"B": with_classes(600, MASS, seed=1, jets_seed=0), "C": with_classes(600, MASS, renamed)}
    found = partt.evaluate(
        [with_classes(600, MASS, seed=seed, jets_seed=0) for seed in range(3)], name="A", compare=models
    )
    (target,) = found.targets
    assert [predictor.title for predictor in target.predictors] == ["A", "B", "C: mass", "C: pt", "jet_mass"]
    (table,) = found.regression_tables
    cell = table.rows[0].widths[0]
    values = [seed.regressions["mass"].prediction.resolution.width.value[0] for seed in found.models["A"]]
    assert cell.value == pytest.approx(np.median(values))
    assert cell.spread == pytest.approx(np.std(values, ddof=1))
    in_bins = [row for row in table.rows if row.place.observer == "jet_pt" and row.place.group == "all jets"]
    assert all(cell is not None for row in in_bins for cell in row.widths)


def test_errors_name_what_is_missing():
    scores = with_classes(60, MASS)
    with pytest.raises(
        ConfigError, match=r"no regression 'mas' \(did you mean 'mass'\?\); regressions and targets: mass, "
    ):
        partt.evaluate(scores, baselines={"mas": ["jet_sdmass"]})
    with pytest.raises(ConfigError, match="no observer 'jet_sd' in the scores"):
        partt.evaluate(scores, baselines={"mass": ["jet_sd"]})
    with pytest.raises(ConfigError, match="need scores of classes"):
        partt.evaluate(only({"x": np.ones(3), "true_x": np.ones(3)}, VALUE), signals=["Hbb"])
    with pytest.raises(DataError, match="the regression 'x' needs 'true_x' among the observers"):
        only({"x": np.ones(3)}, VALUE)
