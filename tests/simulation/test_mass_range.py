"""Masses drawn from a range: flat, complete, and only where asked."""

import numpy as np
import pytest
from simulate_helpers import MODEL

from partt.simulation.extra_branches import extra_branches
from partt.simulation.generator import Generator
from partt.simulation.hard_process import FlatMasses
from partt.simulation.jet_finding import find_jets
from partt.simulation.processes import BY_LABEL, LABELS, in_mass_range
from partt.simulation.truth_labels import find_resonances, match_jets

LOW, HIGH = 30.0, 250.0


def largest_gap(masses, low, high):
    """Return the Kolmogorov-Smirnov distance from a flat distribution, in units of 1 / sqrt(number)."""
    fractions = (np.sort(masses) - low) / (high - low)
    steps = np.arange(len(masses) + 1) / len(masses)
    gap = max(np.abs(fractions - steps[1:]).max(), np.abs(fractions - steps[:-1]).max())
    return gap * np.sqrt(len(masses))


def test_accepted_masses_are_flat():
    random = np.random.default_rng(4)
    falling = np.exp(random.uniform(np.log(LOW), np.log(HIGH), 30_000))  # density 1 / m
    flat = FlatMasses(falling[:10_000], (LOW, HIGH), seed=1)
    accepted = np.array([mass for mass in falling[10_000:] if flat.accepts(mass)])
    assert 0.3 < len(accepted) / 20_000 < 0.5
    counts = np.histogram(accepted, np.linspace(LOW, HIGH, 11))[0]
    np.testing.assert_allclose(counts / counts.mean(), 1, atol=0.15)


def test_only_bosons_have_a_mass_range():
    for label in LABELS:
        process = in_mass_range(BY_LABEL[label], (LOW, HIGH))
        if label in {"QCD", "Tbqq", "Tbl"}:
            assert process is BY_LABEL[label]
        else:
            low = 45.0 if label in {"H4q", "Hqql"} else LOW  # Pythia does not decay lighter ones to WW
            assert process.mass_range == (low, HIGH)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["Zqq", "H4q"])
def test_masses_of_generated_resonances_are_flat(label):
    """With shower and hadronisation; jets have the mass of their resonance."""
    process = in_mass_range(BY_LABEL[label], (LOW, HIGH))
    events = Generator(process, 3, 480.0).next_events(150)
    resonances = find_resonances(events, process)
    masses = events.mass[resonances.row]
    low, high = process.mass_range
    assert len(masses) == 150
    assert ((masses > low - 0.1) & (masses < high + 0.1)).all()
    assert largest_gap(masses, low, high) < 2  # exceeded once in 1500 times by a flat distribution

    candidates = MODEL.respond(events, np.random.default_rng(5))
    jets = find_jets(candidates, len(events), 500.0, 1000.0)
    matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
    extra = extra_branches(events, candidates, jets, matches, extras=["generator"], pt_min=500.0)
    assert set(extra["gen_resonance_mass"]) <= set(masses.astype(np.float32))
    assert len(extra["gen_resonance_mass"]) > 40
    ratio = extra["gen_jet_sdmass"] / extra["gen_resonance_mass"]
    assert np.nanmedian(ratio) == pytest.approx(1, abs=0.06)
    assert np.corrcoef(extra["gen_jet_sdmass"], extra["gen_resonance_mass"])[0, 1] > 0.6
