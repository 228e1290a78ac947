"""Shared by the tests of the simulation: the detector, a few events of every class, a particle gun."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from partt.data.jagged import Table
from partt.simulation.card import load_detector
from partt.simulation.detector.response import Candidates, DetectorModel
from partt.simulation.extra_branches import extra_branches
from partt.simulation.extras import EXTRAS
from partt.simulation.generator import Events, Generator
from partt.simulation.jet_finding import Jets, find_jets
from partt.simulation.jetclass_tree import jet_table
from partt.simulation.processes import BY_LABEL
from partt.simulation.truth_labels import Matches, match_jets

DETECTOR = load_detector()
MODEL = DetectorModel(DETECTOR)

SEED = 11
NUM_EVENTS = 30
HARD_PT_MIN = 480.0

MASSES = {
    11: 0.000511,
    12: 0.0,
    13: 0.10566,
    22: 0.0,
    130: 0.49761,
    211: 0.13957,
    321: 0.49368,
    2112: 0.93957,
}


@dataclass(frozen=True)
class Simulated:
    """All stages of a few events of one class."""

    events: Events
    candidates: Candidates
    jets: Jets
    matches: Matches
    table: Table
    extra: Table


@cache
def simulated(label: str, num_events: int = NUM_EVENTS) -> Simulated:
    """Simulate a class, once in a test session."""
    process = BY_LABEL[label]
    events = Generator(process, SEED, HARD_PT_MIN).next_events(num_events)
    candidates = MODEL.respond(events, np.random.default_rng(SEED))
    jets = find_jets(candidates, len(events), 500.0, 1000.0)
    matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
    table = jet_table(events, candidates, jets, matches, process)
    extra = extra_branches(events, candidates, jets, matches, extras=EXTRAS, pt_min=500.0)
    return Simulated(events, candidates, jets, matches, table, extra)


def gun(particles: Sequence[Sequence[float]], num_events: int = 1) -> Events:
    """Return events that each have the particles (pid, pT, eta, phi), all from the origin."""
    pid, pt, eta, phi = np.tile(np.asarray(particles, dtype=float), (num_events, 1)).T
    mass = np.array([MASSES[abs(int(code))] for code in pid])
    pz = pt * np.sinh(eta)
    zero = np.zeros_like(pt)
    none = np.full(len(pt), -1)
    return Events(
        offsets=np.arange(num_events + 1) * len(particles),
        pid=pid.astype(np.int64),
        status=np.ones(len(pt), dtype=np.int64),
        mother=none,
        first_daughter=none,
        last_daughter=none,
        px=pt * np.cos(phi),
        py=pt * np.sin(phi),
        pz=pz,
        energy=np.sqrt(pt**2 + pz**2 + mass**2),
        mass=mass,
        x=zero,
        y=zero,
        z=zero,
    )
