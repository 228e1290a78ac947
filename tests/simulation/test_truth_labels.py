"""Truth labels against Pythia's event, followed particle by particle with Pythia's own methods."""

import math

import numpy as np
import pytest
from simulate_helpers import HARD_PT_MIN, NUM_EVENTS, SEED, simulated

from partt.simulation.generator import Generator
from partt.simulation.processes import BY_LABEL, LABELS, PROCESSES


def distance(jet_eta, jet_phi, particle):
    dphi = abs(particle.phi() - jet_phi)
    return math.hypot(particle.eta() - jet_eta, min(dphi, 2 * math.pi - dphi))


def children(event, particle):
    """Return the daughters of a particle's last copy."""
    return [event[index] for index in event[particle.iBotCopyId()].daughterList()]


def final_state(event, particle):
    """Return the quarks, gluons and charged leptons of a decay, also those of bosons in it."""
    found = []
    for child in children(event, particle):
        if child.idAbs() in (23, 24):
            found += final_state(event, child)
        elif child.idAbs() in (11, 13):
            found.append(event[child.iBotCopyId()])
        elif child.idAbs() <= 5 or child.idAbs() == 21:
            found.append(child)
    return found


# label: resonance, flavours of its decay as sorted groups of allowed codes
LIGHT, LEPTON = {1, 2, 3, 4, 5}, {11, 13}
EXPECTED = {
    "Hbb": (25, [{5}, {5}]),
    "Hcc": (25, [{4}, {4}]),
    "Hgg": (25, [{21}, {21}]),
    "H4q": (25, [LIGHT] * 4),
    "Hqql": (25, [LIGHT, LIGHT, LEPTON]),
    "Zqq": (23, [LIGHT, LIGHT]),
    "Wqq": (24, [LIGHT, LIGHT]),
    "Tbqq": (6, [LIGHT, LIGHT, {5}]),
    "Tbl": (6, [{5}, LEPTON]),
}


def slow_match(event, label, eta, phi):
    """Return the last copy of a resonance whose products all lie in the jet, or None."""
    if label == "QCD":
        return "every jet"
    code, flavours = EXPECTED[label]
    for index in range(event.size()):
        particle = event[index]
        if particle.idAbs() != code or particle.iBotCopyId() != index:
            continue
        products = sorted(final_state(event, particle), key=lambda one: one.idAbs())
        if len(products) != len(flavours):
            continue
        fits = all(one.idAbs() in allowed for one, allowed in zip(products, flavours, strict=True))
        if fits and all(distance(eta, phi, one) < 0.8 for one in products):
            return particle
    return None


@pytest.mark.parametrize("label", LABELS)
def test_labels_match_the_generated_event(label):
    result = simulated(label)
    generator = Generator(BY_LABEL[label], SEED, HARD_PT_MIN)
    jets, row_in_table, num_matched = result.jets, 0, 0
    jet = 0
    for number in range(NUM_EVENTS):
        generator._pythia.next()
        event = generator._pythia.event
        stored = slice(*result.events.offsets[number : number + 2])
        assert event.size() == stored.stop - stored.start  # the same event again
        while jet < len(jets) and jets.event[jet] == number:
            match = slow_match(event, label, jets.eta[jet], jets.phi[jet])
            assert (match is None) == (result.matches.code[jet] == 0)
            if match is not None:
                labels = {name: float(result.table[f"label_{name}"][row_in_table]) for name in LABELS}
                assert labels == {name: float(name == label) for name in LABELS}
                aux = {
                    name: float(result.table[f"aux_genpart_{name}"][row_in_table])
                    for name in ("pt", "eta", "phi", "pid")
                }
                if label == "QCD":
                    assert aux == {"pt": 0, "eta": 0, "phi": 0, "pid": 0}
                else:
                    expected = (match.pT(), match.eta(), match.phi(), match.id())
                    assert tuple(aux.values()) == pytest.approx(expected, rel=1e-5)
                row_in_table += 1
                num_matched += 1
            jet += 1
    assert jet == len(jets)
    assert num_matched == len(result.table["jet_pt"])
    assert num_matched >= (1 if label == "Hqql" else 5)


ALLOWED_CODES = {
    "QCD": {50}, "Hbb": {41}, "Hcc": {42}, "Hgg": {44}, "H4q": {45}, "Hqql": {46},
    "Zqq": {31, 32, 33}, "Wqq": {21, 22}, "Tbqq": {11, 12}, "Tbl": {15, 16},
}  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_truth_match_numbers(label):
    assert set(simulated(label).table["aux_truth_match"].tolist()) <= ALLOWED_CODES[label]


def test_every_top_decays_to_its_own_code():
    """Half of the W decays have a charm quark; electrons and muons are equally frequent."""
    codes = np.concatenate([simulated(label).matches.code for label in ("Tbqq", "Wqq", "Tbl", "Zqq")])
    for code in (11, 12, 15, 16, 21, 22, 33):
        assert (codes == code).any(), code


def test_processes_are_those_of_jetclass():
    assert LABELS == ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
    prefixes = "ZJetsToNuNu HToBB HToCC HToGG HToWW4Q HToWW2Q1L ZToQQ WToQQ TTBar TTBarLep"
    assert " ".join(process.file_prefix for process in PROCESSES) == prefixes


@pytest.mark.parametrize(("label", "num_neutrinos"), [("Zqq", 2), ("Hqql", 3), ("Hbb", 2), ("Wqq", 2)])
def test_hard_process_has_the_invisible_partner(label, num_neutrinos):
    """Exactly one boson of each event is invisible (Hqql also has the neutrino of the lepton)."""
    events = simulated(label).events
    from_hard = (np.abs(events.status) == 23) & np.isin(np.abs(events.pid), (12, 14, 16))
    counts = np.bincount(events.event[from_hard], minlength=len(events))
    assert (counts == num_neutrinos).all()
