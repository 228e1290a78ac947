"""Jets: selection, soft drop and N-subjettiness against slow calculations."""

import math

import numpy as np
import pytest
from simulate_helpers import simulated

from partt.simulation.detector.response import Candidates, Kind
from partt.simulation.jet_finding import find_jets, substructure

LABELS = ["QCD", "Hbb", "Tbqq"]


def candidates_of(momenta, event=None):
    px, py, pz, energy = np.array(momenta, dtype=float).T
    zero = np.zeros_like(px)
    return Candidates(
        event=np.zeros(len(px), dtype=np.int64) if event is None else np.array(event),
        px=px, py=py, pz=pz, energy=energy, mass=zero, end_eta=zero, d0=zero, d0_error=zero, dz=zero,
        dz_error=zero, charge=zero, kind=np.full(len(px), Kind.PHOTON),
        particle=np.full(len(px), -1), d0_shift=zero, dz_shift=zero,
    )  # fmt: skip


def massless(pt, eta, phi):
    return pt * math.cos(phi), pt * math.sin(phi), pt * math.sinh(eta), pt * math.cosh(eta)


def rapidity_phi(p):
    return 0.5 * math.log((p[3] + p[2]) / (p[3] - p[2])), math.atan2(p[1], p[0])


def separation(a, b):
    (ya, phia), (yb, phib) = rapidity_phi(a), rapidity_phi(b)
    dphi = abs(phia - phib)
    return math.hypot(ya - yb, min(dphi, 2 * math.pi - dphi))


def mass(p):
    return math.sqrt(max(p[3] ** 2 - p[0] ** 2 - p[1] ** 2 - p[2] ** 2, 0))


def slow_soft_drop_mass(momenta, zcut=0.1):
    """Cambridge/Aachen pair by pair, then decluster until the softer branch has more than zcut of the pT."""
    nodes = [(np.array(p), None) for p in momenta]
    while len(nodes) > 1:
        pairs = [(separation(nodes[i][0], nodes[j][0]), i, j) for i in range(len(nodes)) for j in range(i)]
        _, i, j = min(pairs)
        merged = (nodes[i][0] + nodes[j][0], (nodes[i], nodes[j]))
        nodes = [node for k, node in enumerate(nodes) if k not in (i, j)] + [merged]
    node = nodes[0]
    while node[1] is not None:
        soft, hard = sorted(node[1], key=lambda one: math.hypot(*one[0][:2]))
        pt_soft, pt_hard = (math.hypot(*one[0][:2]) for one in (soft, hard))
        if pt_soft / (pt_soft + pt_hard) > zcut:
            break
        node = hard
    return mass(node[0])


@pytest.mark.parametrize("label", LABELS)
def test_soft_drop_mass_against_a_slow_declustering(label):
    result = simulated(label)
    jets = result.jets
    for jet in range(min(3, len(jets))):
        rows = jets.constituents[jets.offsets[jet] : jets.offsets[jet + 1]]
        parts = result.candidates.take(rows)
        momenta = np.stack([parts.px, parts.py, parts.pz, parts.energy], axis=1)
        assert jets.soft_drop_mass[jet] == pytest.approx(slow_soft_drop_mass(momenta), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("label", LABELS)
def test_jets_are_the_sum_of_their_constituents(label):
    result = simulated(label)
    jets, offsets = result.jets, result.jets.offsets
    parts = result.candidates.take(jets.constituents)
    px, py, pz, energy = (
        np.add.reduceat(v, offsets[:-1]) for v in (parts.px, parts.py, parts.pz, parts.energy)
    )
    np.testing.assert_allclose(jets.pt, np.hypot(px, py), rtol=1e-9)
    np.testing.assert_allclose(jets.eta, np.arcsinh(pz / np.hypot(px, py)), rtol=1e-7)
    np.testing.assert_allclose(np.cos(jets.phi - np.arctan2(py, px)), 1)
    np.testing.assert_allclose(jets.energy, energy, rtol=1e-9)
    assert (np.repeat(jets.event, np.diff(offsets)) == parts.event).all()
    assert ((jets.pt > 500) & (jets.pt < 1000) & (np.abs(jets.eta) < 2)).all()
    assert len(set(jets.constituents.tolist())) == len(jets.constituents)


def test_subjettiness_of_constructed_jets():
    """tau_N = sum pT min dR / (0.8 sum pT): zero with an axis for each particle."""
    one = [massless(300, 0.1, 0.2)]
    two = [massless(300, 0.1, 0.2), massless(200, 0.3, 0.5)]
    three = [*two, massless(100, -0.2, 0.1)]
    momenta = candidates_of(one + two + three)
    sd_mass, tau = substructure(momenta, np.array([0, 1, 3, 6]))
    np.testing.assert_allclose(tau[0], 0, atol=1e-6)
    np.testing.assert_allclose(tau[1, 1:], 0, atol=1e-6)
    np.testing.assert_allclose(tau[2, 2:], 0, atol=1e-6)
    # One axis, two massless particles: the best one lies on the harder of them.
    best = 200 * math.hypot(0.2, 0.3) / (500 * 0.8)
    assert best <= tau[1, 0] <= 1.25 * best
    # Two axes: the softest particle belongs to its neighbour, at most its distance away.
    assert 0 < tau[2, 1] <= 100 * math.hypot(0.3, 0.1) / (600 * 0.8) * 1.25
    assert sd_mass[1] == pytest.approx(mass(np.sum(two, axis=0)), rel=1e-6)
    assert sd_mass[0] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("label", LABELS)
def test_subjettiness_falls_with_the_number_of_axes(label):
    tau = simulated(label).jets.tau
    assert ((tau > 0) & (tau < 1)).all()
    assert (np.diff(tau, axis=1) <= 0.02).all()


def test_selection_of_jets_and_events_without_any():
    jets = [massless(600, 0.5, 0.0), massless(550, -0.5, 2.0), massless(499, 1.0, -2.0)]
    jets += [massless(1001, 0.0, 0.0), massless(700, 2.01, 3.0)]
    found = find_jets(candidates_of(jets, event=[1, 1, 1, 3, 3]), 5, 500.0, 1000.0)
    assert found.event.tolist() == [1, 1]
    np.testing.assert_allclose(found.pt, [600, 550])
    assert found.constituents.tolist() == [0, 1]
    assert found.tau.shape == (2, 4)
    nothing = find_jets(candidates_of(jets[2:3]), 1, 500.0, 1000.0)
    assert len(nothing) == 0
    assert nothing.tau.shape == (0, 4)
