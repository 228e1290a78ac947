"""Generator-level jets: which particles are in them, matching, response and masses."""

import numpy as np
import pytest
from simulate_helpers import gun, simulated

from partt.simulation.generator_jets import match_generator_jets

NUM_EVENTS = 100


def test_all_particles_but_neutrinos_are_in_the_jet():
    visible = [(22, 400.0, 0.0, 1.0), (211, 200.0, 0.2, 1.1), (13, 50.0, -0.3, 0.6)]
    events = gun([*visible, (12, 300.0, 0.1, 1.0), (22, 300.0, 1.5, -2.0)])
    px, py, pz, energy = (getattr(events, name)[:3].sum() for name in ("px", "py", "pz", "energy"))
    pt, eta, phi = np.hypot(px, py), np.arcsinh(pz / np.hypot(px, py)), np.arctan2(py, px)
    found = match_generator_jets(events, np.zeros(1, dtype=int), np.array([eta]), np.array([phi]), 250.0)
    mass = np.sqrt(energy**2 - px**2 - py**2 - pz**2)
    assert (found.pt[0], found.eta[0], found.phi[0]) == pytest.approx((pt, eta, phi))
    assert (found.mass[0], found.num_particles[0]) == pytest.approx((mass, 3))
    hard = [0, 1]  # soft drop removes the muon: it has less than a tenth of the pT
    total = [getattr(events, name)[hard].sum() for name in ("energy", "px", "py", "pz")]
    assert found.soft_drop_mass[0] == pytest.approx(np.sqrt(total[0] ** 2 - np.square(total[1:]).sum()))


def test_jets_match_within_their_event_and_half_the_radius():
    events = gun([(22, 600.0, 0.0, 3.1)], num_events=3)
    event = np.array([2, 0, 0, 2])
    eta, phi = np.array([0.39, 0.41, 0.0, 0.0]), np.array([3.1, 3.1, -3.1, 2.6])
    found = match_generator_jets(events, event, eta, phi, 250.0)
    np.testing.assert_array_equal(np.isnan(found.pt), [False, True, False, True])
    for values in vars(found).values():
        np.testing.assert_array_equal(np.isnan(values), np.isnan(found.pt))
    soft = match_generator_jets(events, event, eta, phi, 700.0)
    assert np.isnan(soft.pt).all()
    nothing = match_generator_jets(events, event[:0], eta[:0], phi[:0], 250.0)
    assert len(nothing.pt) == 0


@pytest.mark.parametrize("label", ["Hbb", "Hcc", "QCD"])
def test_response_of_the_detector(label):
    """The detector loses soft particles: a few per cent of the pT; calorimeters smear it by some five."""
    result = simulated(label, NUM_EVENTS)
    pt, gen_pt = result.table["jet_pt"], result.extra["gen_jet_pt"]
    assert np.isfinite(gen_pt).mean() > 0.97
    response = (pt / gen_pt)[np.isfinite(gen_pt)]
    assert 0.94 < np.median(response) < 1.02
    assert 0.02 < np.diff(np.percentile(response, [16, 84]))[0] / 2 < 0.1
    distance = np.hypot(
        result.table["jet_eta"] - result.extra["gen_jet_eta"],
        np.remainder(result.table["jet_phi"] - result.extra["gen_jet_phi"] + np.pi, 2 * np.pi) - np.pi,
    )
    assert np.nanmedian(distance) < 0.03
    assert (result.extra["gen_jet_nparticles"] > 2).all()


def test_masses():
    """The generator's soft-drop mass peaks at the resonance, more sharply than that of the simulated jet."""
    result = simulated("Hcc", NUM_EVENTS)  # few neutrinos
    np.testing.assert_allclose(result.extra["gen_resonance_mass"], 125, atol=0.5)
    generated, simulated_mass = result.extra["gen_jet_sdmass"], result.table["jet_sdmass"]
    assert np.nanmedian(generated) == pytest.approx(125, abs=4)
    near = [(np.abs(mass - 125) < 6).mean() for mass in (generated, simulated_mass)]
    assert near[0] > 0.5
    assert near[0] > near[1]
    assert (result.extra["gen_jet_mass"] > generated - 1e-3).all()
    assert np.isnan(simulated("QCD", NUM_EVENTS).extra["gen_resonance_mass"]).all()
    top = simulated("Tbqq").extra["gen_resonance_mass"]
    assert ((top > 151) & (top < 195)).all()
