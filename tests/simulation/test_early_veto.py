"""Events dropped early in the shower are events without a wanted jet."""

import numpy as np
import pytest
from simulate_helpers import MODEL

from partt.simulation import early_veto
from partt.simulation.early_veto import IN_A_DECAY, EarlyVeto, Estimate, JetWindow, boosted
from partt.simulation.generator import Generator, from_pythia, start_pythia
from partt.simulation.jet_finding import ABS_ETA_MAX, find_jets
from partt.simulation.processes import BY_LABEL
from partt.simulation.truth_labels import match_jets

WINDOW = JetWindow(500.0, ABS_ETA_MAX)


class Witness(EarlyVeto):
    """Notes for each hard process what would be vetoed, and vetoes nothing."""

    def __init__(self, process, window):
        super().__init__(process, window)
        self.would_veto = []

    def doVetoProcessLevel(self, record):  # noqa: N802
        vetoed = super().doVetoProcessLevel(record)
        if not vetoed:
            self.would_veto.append(False)
        return vetoed

    def doVetoPT(self, position, event):  # noqa: N802
        if position != IN_A_DECAY:
            self.would_veto[-1] = super().doVetoPT(position, event)
        return False


@pytest.mark.parametrize("label", ["QCD", "Hqql"])
def test_hardly_any_wanted_jet_is_lost_and_most_other_events_are_dropped(label):
    process = BY_LABEL[label]
    witness = Witness(process, WINDOW)
    pythia = start_pythia(process, 4, 375.0, witness)
    events = from_pythia(pythia.nextBatch(300))
    jets = find_jets(MODEL.respond(events, np.random.default_rng(1)), len(events), 500.0, 1000.0)
    matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
    with_jet = np.isin(np.arange(len(events)), jets.event[matches.code > 0])
    vetoed = np.array(witness.would_veto)
    assert len(vetoed) == len(events) == 300
    assert with_jet.sum() > 20
    assert (with_jet & vetoed).sum() <= 1  # 0.4 % in the benchmark
    assert vetoed[~with_jet].mean() > 0.5


def test_decay_products_follow_their_recoiling_parent():
    """A particle of mass 100 at rest decays back to back, then moves with gamma = 2 along x."""
    before = np.array([0.0, 0.0, 0.0, 100.0])
    after = np.array([100 * np.sqrt(3), 0.0, 0.0, 200.0])
    products = np.array([[0.0, 50.0, 0.0, 50.0], [0.0, -50.0, 0.0, 50.0]])
    moved = boosted(products, before, after)
    np.testing.assert_allclose(moved[0], [50 * np.sqrt(3), 50.0, 0.0, 100.0], atol=1e-12)
    np.testing.assert_allclose(moved.sum(axis=0), after, atol=1e-12)
    np.testing.assert_allclose(boosted(moved, after, before), products, atol=1e-10)


def test_margins():
    signal = EarlyVeto(BY_LABEL["Hbb"], WINDOW)
    assert signal.is_possible(Estimate(pt=456.0, eta=-2.1, distance=1.0))
    assert not signal.is_possible(Estimate(pt=454.0, eta=0.0, distance=0.1))
    assert not signal.is_possible(Estimate(pt=600.0, eta=2.3, distance=0.1))
    assert not signal.is_possible(Estimate(pt=600.0, eta=0.0, distance=1.2))
    assert EarlyVeto(BY_LABEL["QCD"], WINDOW).is_possible(Estimate(pt=431.0, eta=0.0, distance=0.0))


def test_an_endless_row_of_vetoes_is_interrupted(monkeypatch):
    """So that the job can notice, report progress, heed a signal, and end."""
    monkeypatch.setattr(early_veto, "MAX_VETOES_IN_A_ROW", 5)
    nowhere = JetWindow(500.0, -1.0)  # no jet has such an eta
    assert len(Generator(BY_LABEL["QCD"], 4, 375.0, nowhere).next_events(3)) == 3
