"""Cells, resolution and energy flow: constructed events, sampling, and a loop over cells as oracle."""

import math
from collections import defaultdict

import numpy as np
import pytest
from simulate_helpers import DETECTOR, MODEL, gun, simulated

from partt.simulation.card import Detector
from partt.simulation.detector import calorimeter as calorimeter_module
from partt.simulation.detector.calorimeter import (
    build_grid,
    energy_flow,
    energy_shares,
    log_normal,
    resolution,
)
from partt.simulation.detector.response import DetectorModel, Kind

FORWARD = [3.125, 3.3, 3.475, 3.65, 3.825, 4, 4.175, 4.35, 4.525, 4.7, 5]
ECAL_EDGES = [0.0174 * i for i in range(171)] + FORWARD
HCAL_EDGES = [0.087 * i for i in range(20)] + [1.74, 1.83, 1.93, 2.043, 2.172, 2.322, 2.5, 2.65, 2.868, 2.95]
HCAL_EDGES += FORWARD


def slow_cell(name, eta, phi):
    """Find a cell as the specification describes it: (lower |eta| with sign, number in phi)."""
    size = abs(eta)
    edges = ECAL_EDGES if name == "ecal" else HCAL_EDGES
    lower = max((edge for edge in edges if edge < size), default=None)
    if lower is None or size > 5:
        return None
    if name == "ecal":
        degrees = 1 if size <= 2.958 else 10
    else:
        degrees = 5 if size <= 1.653 else 10 if size <= 4.525 else 20
    return math.copysign(1, eta), round(lower, 6), math.floor((math.degrees(phi) + 180) / degrees)


def slow_sigma(name, eta, energy):
    eta = abs(eta)
    if name == "ecal":
        root = math.sqrt((0.008 * energy) ** 2 + 0.11**2 * energy + 0.40**2)
        if eta <= 1.5:
            return (1 + 0.64 * eta**2) * root
        if eta <= 2.5:
            return (2.16 + 5.6 * (eta - 2) ** 2) * root
        return math.sqrt((0.107 * energy) ** 2 + 2.08**2 * energy)
    if eta <= 3:
        return math.sqrt((0.05 * energy) ** 2 + 1.5**2 * energy)
    return math.sqrt((0.13 * energy) ** 2 + 2.7**2 * energy)


@pytest.mark.parametrize("name", ["ecal", "hcal"])
def test_two_places_share_a_cell_as_the_specification_says(name):
    grid = build_grid(getattr(DETECTOR.card, name))
    random = np.random.default_rng(7)
    eta, phi = random.uniform(-5.2, 5.2, 20_000), random.uniform(-np.pi, np.pi, 20_000)
    number = grid.cell(eta, phi)
    slow = [slow_cell(name, *place) for place in zip(eta, phi, strict=True)]
    assert [cell is None for cell in slow] == (number < 0).tolist()
    # The same partition: cells correspond one to one.
    inside = number >= 0
    pairs = {(cell, int(n)) for cell, n in zip(slow, number, strict=True) if cell is not None}
    assert len(pairs) == len({cell for cell, _ in pairs}) == len({n for _, n in pairs})
    low, high, phi_low, phi_high = grid.limits(number[inside])
    assert ((low <= eta[inside]) & (eta[inside] <= high)).all()
    assert ((phi_low <= phi[inside] + 1e-12) & (phi[inside] <= phi_high + 1e-12)).all()


def test_number_of_cells():
    assert build_grid(DETECTOR.card.ecal).num_cells == 2 * (170 * 360 + 11 * 36)
    assert build_grid(DETECTOR.card.hcal).num_cells == 2 * (19 * 72 + 19 * 36 + 2 * 18)


@pytest.mark.parametrize("name", ["ecal", "hcal"])
def test_resolution_formulas(name):
    random = np.random.default_rng(8)
    eta, energy = random.uniform(-5, 5, 1000), 10 ** random.uniform(-2, 3, 1000)
    expected = [slow_sigma(name, *values) for values in zip(eta, energy, strict=True)]
    found = resolution(getattr(DETECTOR.card, name).resolution, eta, energy)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_log_normal_has_the_given_mean_and_width():
    drawn = log_normal(np.full(400_000, 20.0), np.full(400_000, 5.0), np.random.default_rng(9))
    assert drawn.mean() == pytest.approx(20, rel=2e-3)
    assert drawn.std() == pytest.approx(5, rel=5e-3)
    assert (drawn > 0).all()
    assert log_normal(np.zeros(3), np.ones(3), np.random.default_rng(9)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("pid", "kind", "name"), [(22, Kind.PHOTON, "ecal"), (130, Kind.NEUTRAL_HADRON, "hcal")]
)
@pytest.mark.parametrize(("pt", "eta"), [(60.0, 0.3), (90.0, -1.9)])
def test_energy_of_neutral_particles_by_sampling(pid, kind, name, pt, eta):
    events = gun([(pid, pt, eta, 1.0)], 20_000)
    candidates = MODEL.respond(events, np.random.default_rng(10))
    assert set(candidates.kind) == {kind}
    low, high, _, _ = (value[0] for value in getattr(MODEL, f"{name}_grid").limits(
        getattr(MODEL, f"{name}_grid").cell(np.array([eta]), np.array([1.0]))
    ))  # fmt: skip
    sigma = slow_sigma(name, (low + high) / 2, events.energy[0])
    assert candidates.energy.mean() == pytest.approx(events.energy[0], rel=0.01)
    assert candidates.energy.std() == pytest.approx(sigma, rel=0.03)
    eta_found = np.arcsinh(candidates.pz / np.hypot(candidates.px, candidates.py))
    assert low <= eta_found.min() < low + 0.01 * (high - low)  # spread over the whole cell
    assert high >= eta_found.max() > high - 0.01 * (high - low)


# --- the rules of the energy flow, on constructed events with exact calorimeters and trackers ---------


@pytest.fixture(scope="module")
def exact() -> DetectorModel:
    """A detector that measures energies exactly and finds every track; thresholds are unchanged."""

    def without_noise(calorimeter):
        flat = [
            region.model_copy(update={"constant": 0.0, "stochastic": 0.0, "noise": 0.0})
            for region in calorimeter.resolution
        ]
        return calorimeter.model_copy(update={"resolution": flat})

    def always_found(regions):
        return [region.model_copy(update={"efficiency": 1.0, "falls_over": None}) for region in regions]

    tracking = DETECTOR.card.tracking
    card = DETECTOR.card.model_copy(
        update={
            "ecal": without_noise(DETECTOR.card.ecal),
            "hcal": without_noise(DETECTOR.card.hcal),
            "solenoid": DETECTOR.card.solenoid.model_copy(update={"field": 1e-6}),
            "tracking": tracking.model_copy(
                update={
                    name: always_found(getattr(tracking, name))
                    for name in ("charged_hadron", "electron", "muon")
                }
            ),
        }
    )
    return DetectorModel(Detector(card, DETECTOR.impact_parameters))


def flow_of(exact, *particles):
    candidates = exact.respond(gun(particles), np.random.default_rng(0))
    return sorted(
        (Kind(k), round(float(e), 5)) for k, e in zip(candidates.kind, candidates.energy, strict=True)
    )


def energy_of(*particle):
    return float(gun([particle]).energy[0])


PION = (211, 10.0, 0.04, 0.04)  # well inside the HCAL cell 0 < eta < 0.087, 0 < phi < 5 degrees


def test_a_track_alone_keeps_its_momentum(exact):
    assert flow_of(exact, PION) == [(Kind.CHARGED_HADRON, round(energy_of(*PION), 5))]


def test_an_excess_above_the_threshold_is_a_neutral_hadron_and_the_track_stays(exact):
    neutron = (2112, 5.0, 0.05, 0.05)
    expected = [(Kind.CHARGED_HADRON, energy_of(*PION)), (Kind.NEUTRAL_HADRON, energy_of(*neutron))]
    assert flow_of(exact, PION, neutron) == [(kind, round(energy, 5)) for kind, energy in expected]


def test_an_excess_below_the_threshold_goes_to_the_track(exact):
    kaon = (130, 0.5, 0.05, 0.05)
    assert energy_of(*kaon) < 1
    pion, total = energy_of(*PION), energy_of(*PION) + energy_of(*kaon)
    scale = total / pion
    momentum2 = pion**2 - 0.13957**2
    expected = math.sqrt(scale**2 * momentum2 + 0.13957**2)  # pT times E / E_tracks, mass kept
    assert flow_of(exact, PION, kaon) == [(Kind.CHARGED_HADRON, round(expected, 5))]


def test_a_track_in_a_cell_below_the_threshold_vanishes(exact):
    assert flow_of(exact, (211, 0.8, 0.04, 0.04)) == []
    assert flow_of(exact, (11, 0.4, 0.01, 0.01)) == []
    assert len(flow_of(exact, (211, 0.8, 0.04, 0.04), (-211, 0.8, 0.05, 0.05))) == 2  # together above 1 GeV
    assert len(flow_of(exact, (211, 0.8, 0.04, 0.04), (-211, 0.8, 0.15, 0.05))) == 0  # in two cells
    assert len(flow_of(exact, (11, 0.6, 0.01, 0.01))) == 1


def test_muons_pass_untouched_however_soft(exact):
    muon = (13, 0.5, 0.04, 0.04)
    assert flow_of(exact, muon) == [(Kind.MUON, round(energy_of(*muon), 5))]
    # ... and their energy does not enter the cell
    assert (Kind.CHARGED_HADRON, round(energy_of(*PION), 5)) in flow_of(exact, PION, muon)


def test_photon_and_electron_in_one_cell(exact):
    electron, photon, soft = (11, 20.0, 0.005, 0.005), (22, 8.0, 0.006, 0.006), (22, 0.3, 0.006, 0.006)
    assert flow_of(exact, electron, photon) == [
        (Kind.PHOTON, round(energy_of(*photon), 5)),
        (Kind.ELECTRON, round(energy_of(*electron), 5)),
    ]
    ((kind, energy),) = flow_of(exact, electron, soft)
    assert kind == Kind.ELECTRON
    assert energy == pytest.approx(energy_of(*electron) + energy_of(*soft), rel=1e-5)


def test_the_hadron_does_not_disturb_the_electromagnetic_cell(exact):
    photon = (22, 8.0, 0.04, 0.04)
    assert flow_of(exact, PION, photon) == [
        (Kind.CHARGED_HADRON, round(energy_of(*PION), 5)),
        (Kind.PHOTON, round(energy_of(*photon), 5)),
    ]


def test_an_untracked_hadron_is_neutral_energy(exact):
    far = (211, 10.0, 2.7, 0.04)  # beyond the tracker
    assert flow_of(exact, far) == [(Kind.NEUTRAL_HADRON, round(energy_of(*far), 5))]


def test_neutral_candidates_carry_no_track_values():
    candidates = simulated("Hbb").candidates
    neutral = np.isin(candidates.kind, (Kind.PHOTON, Kind.NEUTRAL_HADRON))
    for values in (candidates.d0, candidates.d0_error, candidates.dz, candidates.dz_error, candidates.charge):
        assert not values[neutral].any()
    assert (np.abs(candidates.charge[~neutral]) == 1).all()


@pytest.mark.parametrize("name", ["ecal", "hcal"])
def test_energy_flow_of_real_events_cell_by_cell(monkeypatch, name):
    """A plain loop over cells, with the fluctuation replaced by a known one."""

    def fluctuate(mean, sigma, random):
        return mean * (1 + 0.9 * np.sin(1000 * mean))  # between 0.1 and 1.9 of the mean

    monkeypatch.setattr(calorimeter_module, "log_normal", fluctuate)
    card, grid = getattr(MODEL.detector.card, name), getattr(MODEL, f"{name}_grid")
    stable = MODEL._stable_particles(simulated("Tbqq").events)
    tracks = MODEL._tracks(stable, np.random.default_rng(12))
    particles = [
        (s.event, s.end_eta, s.end_phi, s.energy * energy_shares(card, s.pid)) for s in (stable, tracks)
    ]
    found = energy_flow(card, grid, *particles, np.random.default_rng(13))

    cells, tracked = defaultdict(float), defaultdict(list)
    for event, eta, phi, energy in zip(*particles[0], strict=True):
        cell = slow_cell(name, eta, phi)
        if cell is not None and energy > 0:
            cells[event, cell] += energy
    for row, (event, eta, phi, energy) in enumerate(zip(*particles[1], strict=True)):
        if energy > 0:
            tracked[event, slow_cell(name, eta, phi)].append((row, energy))

    energy_min, significance = {"ecal": (0.5, 2.0), "hcal": (1.0, 1.0)}[name]
    edges = ECAL_EDGES if name == "ecal" else HCAL_EDGES
    neutral, scale = [], np.ones(len(tracks.pt))
    vanished = 0
    for (event, cell), deposited in cells.items():
        _, lower, _ = cell
        centre = (lower + min(edge for edge in edges if edge > lower + 1e-6)) / 2
        energy = float(fluctuate(np.array(deposited), None, None))
        sigma = slow_sigma(name, centre, energy)
        if energy < energy_min or energy < significance * sigma:
            energy = 0.0
        total = sum(one for _, one in tracked[event, cell])
        if energy - total > energy_min and energy - total > significance * sigma:
            neutral.append((event, round(energy - total, 6)))
            continue
        for row, _ in tracked[event, cell]:
            scale[row] = energy / total
            vanished += energy == 0
    np.testing.assert_allclose(found.track_scale, scale, rtol=1e-9)
    pairs = zip(found.neutral_event.tolist(), np.round(found.neutral_energy, 6).tolist(), strict=True)
    assert sorted(pairs) == sorted((int(event), float(energy)) for event, energy in neutral)
    assert len(neutral) > 100
    assert name == "ecal" or vanished > 100
