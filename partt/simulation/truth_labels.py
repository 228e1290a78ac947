"""Generator truth: which jets contain all decay products of their resonance.

Axes: R resonances of a batch of events, D decay products of each, J jets.
"""

from dataclasses import dataclass

import numpy as np

from partt.simulation.generator import Events, Floats, Integers
from partt.simulation.processes import W_BOSON, Z_BOSON, Decay, Process

MAX_DISTANCE = 0.8
MAX_COPIES = 1000

NUM_QUARKS = {"two_partons": 2, "four_quarks": 4, "two_quarks_lepton": 2, "b_two_quarks": 3, "b_lepton": 1}
NUM_LEPTONS = {"two_partons": 0, "four_quarks": 0, "two_quarks_lepton": 1, "b_two_quarks": 0, "b_lepton": 1}

# aux_truth_match: the codes that JetClass gives to decays.
QCD_CODE = 50
FIXED_CODES = {"four_quarks": 45, "two_quarks_lepton": 46}


@dataclass(frozen=True, eq=False)
class Resonances:
    """Decayed resonances: the last copy of each and its decay products, as rows of the events."""

    event: Integers  # (R,)
    row: Integers  # (R,)
    products: Integers  # (R, D) quarks and gluons first, then leptons


@dataclass(frozen=True, eq=False)
class Matches:
    """The resonance in each jet; row -1 and code 0 if there is none."""

    row: Integers  # (J,) of the events; also -1 for QCD
    code: Integers  # (J,) aux_truth_match


def last_copies(events: Events, rows: Integers) -> Integers:
    """Follow particles through radiation and recoil to their last copy, the one that decays or is stable."""
    rows = rows.copy()
    for _ in range(MAX_COPIES):
        first, last = events.first_daughter[rows], events.last_daughter[rows]
        first_continues = (first >= 0) & (events.pid[first] == events.pid[rows])
        last_continues = (last >= 0) & (events.pid[last] == events.pid[rows])
        if not (first_continues | last_continues).any():
            return rows
        rows = np.where(first_continues, first, np.where(last_continues, last, rows))
    raise ValueError(f"a particle has more than {MAX_COPIES} copies")


def find_resonances(events: Events, process: Process) -> Resonances:
    """Find the resonances of a process with the decay that defines the class."""
    of_kind = np.flatnonzero(np.abs(events.pid) == process.resonance)
    rows = np.unique(last_copies(events, of_kind))
    products = _products(events, rows, process.decay)
    complete = (products >= 0).all(axis=1)
    rows, products = rows[complete], products[complete]
    return Resonances(np.searchsorted(events.offsets, rows, side="right") - 1, rows, products)


def _products(events: Events, rows: Integers, decay: Decay) -> Integers:
    """Return quarks, gluons and charged leptons of each decay (R, D); -1 if their number is different.

    W and Z bosons among the daughters are replaced by the daughters of their last copy. Leptons are followed
    to their last copy, quarks and gluons are not.
    """
    num_quarks, num_leptons = NUM_QUARKS[decay], NUM_LEPTONS[decay]
    parent, daughter = _daughters(events, rows)
    is_boson = np.isin(np.abs(events.pid[daughter]), (W_BOSON, Z_BOSON))
    boson_child, grandchild = _daughters(events, last_copies(events, daughter[is_boson]))
    parent = np.concatenate([parent[~is_boson], parent[is_boson][boson_child]])
    daughter = np.concatenate([daughter[~is_boson], grandchild])

    code = np.abs(events.pid[daughter])
    quarks = _table(parent, daughter, (code <= 5) | (code == 21), len(rows), num_quarks)
    leptons = _table(parent, daughter, (code == 11) | (code == 13), len(rows), num_leptons)
    found = leptons >= 0
    leptons[found] = last_copies(events, leptons[found])
    return np.concatenate([quarks, leptons], axis=1)


def _daughters(events: Events, rows: Integers) -> tuple[Integers, Integers]:
    """Return the position in `rows` of the mother, and the row, of all daughters of the given particles."""
    first = events.first_daughter[rows]
    counts = np.where(first >= 0, events.last_daughter[rows] - first + 1, 0)
    mother = np.repeat(np.arange(len(rows)), counts)
    start = np.repeat(np.cumsum(counts) - counts, counts)
    return mother, first[mother] + np.arange(len(mother)) - start


def _table(parent: Integers, row: Integers, wanted: Integers, num_parents: int, width: int) -> Integers:
    """Arrange the wanted rows by parent, `width` each; -1 if their number is different."""
    parent, row = parent[wanted], row[wanted]
    order = np.argsort(parent, kind="stable")
    parent, row = parent[order], row[order]
    counts = np.bincount(parent, minlength=num_parents)
    table = np.full((num_parents, width), -1)
    if width == 0:
        return table
    complete = counts[parent] == width
    table[counts == width] = row[complete].reshape(-1, width)
    return table


def match_jets(
    events: Events, process: Process, jet_event: Integers, jet_eta: Floats, jet_phi: Floats
) -> Matches:
    """Match each jet to a resonance whose decay products all lie within 0.8 of the jet axis.

    Every jet of a process without a resonance (QCD) matches, with row -1.
    """
    if process.resonance == 0:
        return Matches(np.full(len(jet_event), -1), np.full(len(jet_event), QCD_CODE))
    resonances = find_resonances(events, process)
    eta, phi = directions(events, resonances.products)  # (R, D)
    codes = truth_codes(events, process, resonances)
    first = np.searchsorted(resonances.event, jet_event, side="left")
    last = np.searchsorted(resonances.event, jet_event, side="right")

    row, code = np.full(len(jet_event), -1), np.zeros(len(jet_event), dtype=np.int64)
    for slot in range(int((last - first).max(initial=0))):
        jets = np.flatnonzero((first + slot < last) & (row < 0))
        number = first[jets] + slot
        deta = eta[number] - jet_eta[jets, None]
        dphi = wrap(phi[number] - jet_phi[jets, None])
        inside = (np.hypot(deta, dphi) < MAX_DISTANCE).all(axis=1)
        row[jets[inside]] = resonances.row[number[inside]]
        code[jets[inside]] = codes[number[inside]]
    return Matches(row, code)


def directions(events: Events, rows: Integers) -> tuple[Floats, Floats]:
    """Return eta and phi of the momenta of the given particles."""
    px, py, pz = events.px[rows], events.py[rows], events.pz[rows]
    return np.arcsinh(pz / np.hypot(px, py)), np.arctan2(py, px)


def wrap(angle: Floats) -> Floats:
    """Wrap angles to [-pi, pi)."""
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi


def truth_codes(events: Events, process: Process, resonances: Resonances) -> Integers:
    """Return the code that JetClass gives to each decay.

    Top: 11 b c q, 12 b q q, 15 b e nu, 16 b mu nu. W: 21 c q, 22 q q. Z: 31 b b, 32 c c, 33 q q.
    H: 41 b b, 42 c c, 44 g g, 45 four quarks, 46 two quarks and a lepton. QCD: 50.
    """
    flavour = np.abs(events.pid[resonances.products])  # (R, D)
    has_charm = (flavour == 4).any(axis=1)
    if process.decay in FIXED_CODES:
        code = np.full(len(flavour), FIXED_CODES[process.decay])
    elif process.decay == "b_lepton":
        code = np.where(flavour[:, -1] == 11, 15, 16)
    elif process.decay == "b_two_quarks":
        code = np.where(has_charm, 11, 12)
    elif process.resonance == W_BOSON:
        code = np.where(has_charm, 21, 22)
    elif process.resonance == Z_BOSON:
        code = np.select([flavour[:, 0] == 5, has_charm], [31, 32], 33)
    else:
        code = np.select([flavour[:, 0] == 5, has_charm], [41, 42], 44)
    return code
