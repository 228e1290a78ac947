"""Thresholds, efficiencies in bins, mass sculpting, and the correctionlib file."""

import json

import correctionlib
import numpy as np
import pytest

from partt.errors import ConfigError
from partt.evaluation.corrections import to_correctionlib
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.sculpting import mass_sculpting
from partt.evaluation.settings import EvaluationSettings, parse_backgrounds, parse_bins
from partt.evaluation.summary import summarise
from partt.evaluation.working_points import Request, binned_efficiency, find_working_point, parse_requests
from partt.scores.passing import sort_sample
from partt.scores.presets import choose_discriminants
from toy_scores import CLASSES, random_scores

BINS = {"jet_pt": np.array([500.0, 750.0, 1000.0]), "jet_eta": np.array([-2.0, 0.0, 2.0])}


@pytest.fixture(scope="module")
def scores():
    probabilities, labels = random_scores(4000)
    random = np.random.default_rng(2)
    observers = {"jet_pt": random.uniform(500, 1000, 4000), "jet_eta": random.uniform(-2, 2, 4000)}
    return scores_from_arrays(CLASSES, probabilities, labels, observers=observers)


@pytest.fixture(scope="module")
def summary(scores):
    requests = parse_requests(["eps_s=0.5,0.8", "eps_b=0.01"])
    return summarise(scores, EvaluationSettings(choose_discriminants(CLASSES), requests, BINS))


def test_thresholds_keep_what_they_promise(scores, summary):
    one = summary.discriminants["Hbb_vs_QCD"]
    values = {name: one.discriminant.values(scores.of(name).scores, CLASSES) for name in ("Hbb", "QCD")}
    for found in one.working_points:
        point = found.point
        passing = {name: np.count_nonzero(some >= point.threshold) for name, some in values.items()}
        assert (point.num_signal_passing, point.num_background_passing) == (passing["Hbb"], passing["QCD"])
        assert point.signal.value[0] == passing["Hbb"] / len(values["Hbb"])
        if point.request.of == "eps_s":
            assert point.signal.value[0] >= point.request.efficiency
            assert np.mean(values["Hbb"] > point.threshold) < point.request.efficiency
        else:
            assert point.background.value[0] <= point.request.efficiency
            next_one = values["QCD"][values["QCD"] < point.threshold].max()
            assert np.mean(values["QCD"] >= next_one) > point.request.efficiency
        for interval in (point.signal, point.background):
            assert interval.low[0] < interval.value[0] < interval.high[0]


def test_equal_scores_have_no_threshold_for_a_background_efficiency():
    same = sort_sample(np.full(20, 0.5))
    point = find_working_point(same, same, Request("eps_b", 0.1))
    assert point.threshold > 0.5
    assert point.signal.value[0] == point.background.value[0] == 0


def test_bins_add_up(summary):
    found = summary.discriminants["Hbb_vs_QCD"].working_points[0]
    for binned in (found.signal_by["jet_pt"], found.signal_by["jet_eta"], found.by_class["Hbb"]):
        passing = binned.efficiency.value @ binned.num_jets
        assert passing == pytest.approx(found.point.num_signal_passing)
    assert found.by_class["Hbb"].num_jets.shape == (4,)


def test_bins_by_hand():
    passed = np.array([True, False, True, True, False, True])
    observer = {"x": np.array([0.0, 0.5, 1.0, 2.0, 2.5, np.nan])}  # both edges of the last bin count
    found = binned_efficiency(passed, None, observer, {"x": np.array([0.0, 1.0, 2.0])})
    assert found.num_jets.tolist() == [2, 2]
    assert found.efficiency.value.tolist() == [0.5, 1.0]
    weighted = binned_efficiency(
        passed, np.array([3.0, 1, 1, 1, 1, 1]), observer, {"x": np.array([0.0, 1.0, 2.0, 9])}
    )
    assert weighted.efficiency.value.tolist() == [0.75, 1.0, 0.5]
    empty = binned_efficiency(passed, None, observer, {"x": np.array([5.0, 6.0])})
    assert np.isnan(empty.efficiency.value).all()


def test_correctionlib_reads_it_back(summary):
    found = correctionlib.CorrectionSet.from_string(to_correctionlib(summary))
    assert list(found.keys()) == ["Hbb_vs_QCD", "Tbl_vs_QCD"]
    correction = found["Hbb_vs_QCD"]
    for working_point in summary.discriminants["Hbb_vs_QCD"].working_points:
        name = working_point.point.request.name
        for truth, binned in working_point.by_class.items():
            for number, (pt, eta) in enumerate([(600.0, -1.0), (600.0, 1.0), (800.0, -1.0), (800.0, 1.0)]):
                for variation, values in zip(("nominal", "down", "up"), binned.efficiency, strict=True):
                    assert correction.evaluate(name, truth, variation, pt, eta) == pytest.approx(
                        values[number]
                    )
    inside = correction.evaluate("eps_s=0.5", "Hbb", "nominal", 999.0, 1.0)
    assert correction.evaluate("eps_s=0.5", "Hbb", "nominal", 5000.0, 7.0) == inside


def test_correctionlib_without_observers_and_with_empty_bins(scores):
    for bins in ({}, {"jet_pt": np.array([0.0, 100.0, 1000.0])}):
        summary = summarise(
            scores, EvaluationSettings(choose_discriminants(CLASSES, signals=["Hbb"]), bins=bins)
        )
        correction = correctionlib.CorrectionSet.from_string(to_correctionlib(summary))["Hbb_vs_QCD"]
        assert correction.evaluate("eps_s=0.5", "Hbb", "nominal", *[50.0] * len(bins)) == pytest.approx(
            0.5, abs=0.001
        )


def test_several_backgrounds_are_added_with_their_fractions(scores):
    discriminants = choose_discriminants(CLASSES, None, ["Hbb"], parse_backgrounds(["QCD:0.9,Tbl:0.1"]))
    (one,) = discriminants
    assert one.title == "Hbb vs 0.9 QCD + 0.1 Tbl"
    jets = scores.of("Tbl")
    qcd, hbb, tbl = jets.scores.astype(float)
    np.testing.assert_allclose(one.values(jets.scores, CLASSES), hbb / (hbb + 0.9 * qcd + 0.1 * tbl))
    found = summarise(scores, EvaluationSettings(discriminants)).discriminants["Hbb_vs_QCD_Tbl"]
    assert found.num_background == len(scores.of("QCD")) + len(scores.of("Tbl"))
    by_class = found.working_points[0].by_class
    passing = sum(by_class[name].overall * len(scores.of(name)) for name in ("QCD", "Tbl"))
    assert passing == pytest.approx(found.working_points[0].point.num_background_passing)


def test_presets():
    jetclass = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
    found = {one.signal: one for one in choose_discriminants(jetclass)}
    assert len(found) == 9
    assert found["Hqql"].efficiencies == (0.99,)
    assert found["Tbl"].efficiencies == (0.995,)
    assert found["Tbqq"].efficiencies == (0.5,)
    assert all(dict(one.backgrounds) == {"QCD": 1.0} for one in found.values())
    (top,) = choose_discriminants(("jet_isTop", "jet_isQCD"))
    assert (top.signal, dict(top.backgrounds), top.efficiencies) == (
        "jet_isTop",
        {"jet_isQCD": 1.0},
        (0.3, 0.5),
    )
    (quark,) = choose_discriminants(("gluon", "quark"), "qg")
    assert (quark.signal, list(quark.backgrounds)) == ("quark", ["gluon"])
    (other,) = choose_discriminants(("a", "b"))
    assert (other.signal, list(other.backgrounds)) == ("a", ["b"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parse_requests(["eps_x=0.5"]), "eps_x=0.5"),
        (lambda: parse_requests(["eps_s=1.5"]), "eps_s=1.5"),
        (lambda: parse_requests(["eps_s="]), "should be like eps_s=0.5,0.8"),
        (lambda: parse_bins(["jet_pt=500"]), "increasing edges"),
        (lambda: parse_bins(["jet_pt=5,4,x"]), "increasing edges"),
        (lambda: parse_backgrounds(["QCD:0"]), "background 'QCD:0'"),
        (lambda: parse_backgrounds(["QCD,QCD"]), "each class once"),
        (lambda: choose_discriminants(CLASSES, signals=["Hcc"]), r"no class 'Hcc'.*classes: QCD, Hbb, Tbl"),
        (lambda: choose_discriminants(CLASSES, signals=["QCD"]), "both signal and background"),
        (lambda: choose_discriminants(CLASSES, "top"), "the preset needs a class 'Top'"),
        (lambda: choose_discriminants(CLASSES, "jetklass"), r"did you mean 'jetclass'"),
    ],
)
def test_wrong_requests_are_explained(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_sculpting_is_distinguished_from_chance():
    random = np.random.default_rng(4)
    masses = random.gamma(3, 30, 20_000)
    edges = np.linspace(0, 300, 26)
    blind = mass_sculpting("m", masses, random.uniform(size=20_000) < 0.02, None, edges)
    assert blind is not None
    assert blind.distance == pytest.approx(blind.distance_by_chance, rel=0.3)
    sculpted = mass_sculpting("m", masses, np.abs(masses - 125) < 15, None, edges)
    assert sculpted is not None
    assert sculpted.distance > 10 * sculpted.distance_by_chance
    assert mass_sculpting("m", masses, masses < 1, None, edges) is None


def test_sculpting_weights_equal_repetition():
    random = np.random.default_rng(5)
    masses, weights = random.gamma(3, 30, 1000), random.integers(1, 4, 1000)
    passed = random.uniform(size=1000) < 0.3
    edges = np.linspace(0, 300, 26)
    weighted = mass_sculpting("m", masses, passed, weights.astype(float), edges)
    repeated = mass_sculpting("m", np.repeat(masses, weights), np.repeat(passed, weights), None, edges)
    assert weighted is not None
    assert repeated is not None
    assert weighted.distance == pytest.approx(repeated.distance)
    json.dumps(weighted.distance)
