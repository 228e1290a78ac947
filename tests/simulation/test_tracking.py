"""Tracking efficiency and impact-parameter resolution: the specification's tables, and sampling."""

import csv
import math

import numpy as np
import pytest
from simulate_helpers import DETECTOR, MODEL, gun

from conftest import ROOT
from partt.simulation.detector.tracking import efficiency, impact_parameter_widths

TABLE = ROOT / "partt" / "simulation" / "cards" / "jetclass_impact_parameters.csv"


def specified_efficiency(kind: str, eta: float, pt: float) -> float:
    """Return the table of the specification, by hand."""
    eta = abs(eta)
    if pt <= 0.1 or eta > 2.5:
        return 0.0
    low = {"charged_hadron": (0.70, 0.60), "electron": (0.73, 0.50), "muon": (0.75, 0.70)}[kind]
    high = {"charged_hadron": (0.95, 0.85), "electron": (0.95, 0.83), "muon": (0.99, 0.98)}[kind]
    side = 0 if eta <= 1.5 else 1
    if pt <= 1:
        return low[side]
    if kind == "electron" and pt > 100:
        return (0.99, 0.90)[side]
    if kind == "muon" and pt > 1000:
        return high[side] * math.exp(0.5 - pt * 5e-4)
    return high[side]


@pytest.mark.parametrize("kind", ["charged_hadron", "electron", "muon"])
def test_efficiency_is_that_of_the_specification(kind):
    random = np.random.default_rng(3)
    eta = np.concatenate([random.uniform(-3, 3, 2000), [0.0, 1.5, -1.5, 2.5, -2.5, 2.51] * 6])
    pt = np.concatenate(
        [10 ** random.uniform(-1.5, 3.6, 2000), np.repeat([0.1, 1.0, 100.0, 1000.0, 0.11, 1.01], 6)]
    )
    expected = [specified_efficiency(kind, *values) for values in zip(eta, pt, strict=True)]
    found = efficiency(getattr(DETECTOR.card.tracking, kind), np.abs(eta), pt)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("pid", "pt", "eta", "expected"),
    [
        (211, 20.0, 0.7, 0.95),
        (-211, 0.9, 0.2, 0.70),
        (-211, 0.6, 0.2, 0.60),  # a curler: it ends on the end cap, beyond |eta| = 1.5
        (11, 150.0, -2.0, 0.90),
        (13, 30.0, 2.0, 0.98),
        (13, 1500.0, 1.0, 0.99 * math.exp(-0.25)),
    ],
)
def test_efficiency_by_sampling(pid, pt, eta, expected):
    """Count tracks of a particle gun; thresholds of the calorimeter must not interfere."""
    num_events = 20_000
    events = gun([(pid, pt, eta, 0.3)], num_events)
    tracks = MODEL._tracks(MODEL._stable_particles(events), np.random.default_rng(4))
    error = math.sqrt(expected * (1 - expected) / num_events)
    assert len(tracks.pt) / num_events == pytest.approx(expected, abs=4 * error)


def table_width(eta: float, pt: float) -> tuple[float, float]:
    """Search the table row by row."""
    with TABLE.open() as lines:
        for row in csv.DictReader(lines):
            upper = float(row["pt_max_gev"] or "inf")
            if float(row["abs_eta_min"]) < abs(eta) <= float(row["abs_eta_max"]) and (
                float(row["pt_min_gev"]) < pt <= upper
            ):
                return float(row["sigma_d0_mm"]), float(row["sigma_dz_mm"])
    return 0.0, 0.0


def test_widths_are_those_of_the_table():
    random = np.random.default_rng(5)
    eta, pt = random.uniform(0, 2.8, 300), 10 ** random.uniform(-1, 3, 300)
    eta[:3], pt[:3] = (0.9, 1.4, 2.5), (0.2227, 134.713, 9.9849)  # upper edges belong to their bin
    expected = np.array([table_width(*values) for values in zip(eta, pt, strict=True)])
    found = np.stack(impact_parameter_widths(DETECTOR.impact_parameters, eta, pt), axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("pt", "eta"), [(1.2, 0.4), (15.0, -1.2), (60.0, 2.1)])
def test_impact_parameters_by_sampling(pt, eta):
    candidates = MODEL.respond(gun([(13, pt, eta, 0.3)], 20_000), np.random.default_rng(6))
    sigma_d0, sigma_dz = table_width(eta, pt)
    assert np.unique(candidates.d0_error).tolist() == [sigma_d0]
    assert np.unique(candidates.dz_error).tolist() == [sigma_dz]
    assert candidates.d0.std() == pytest.approx(sigma_d0, rel=0.03)
    assert candidates.dz.std() == pytest.approx(sigma_dz, rel=0.03)
    assert abs(candidates.d0.mean()) < 4 * sigma_d0 / math.sqrt(len(candidates))


def test_no_width_without_a_table():
    found = impact_parameter_widths((), np.array([0.5]), np.array([5.0]))
    assert [values.tolist() for values in found] == [[0.0], [0.0]]
