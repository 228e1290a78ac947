"""Seed -> tables of jets: generator, detector, jet finding, truth labels, branches, batch by batch."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from partt.data.jagged import Table, num_jets, take
from partt.errors import NumericalError
from partt.simulation.card import Detector
from partt.simulation.detector.response import DetectorModel
from partt.simulation.early_veto import JetWindow
from partt.simulation.extra_branches import extra_branches
from partt.simulation.generator import Generator
from partt.simulation.jet_finding import ABS_ETA_MAX, find_jets
from partt.simulation.jetclass_tree import jet_table
from partt.simulation.processes import Process
from partt.simulation.truth_labels import match_jets

EVENTS_PER_BATCH = 100  # changing it changes all random numbers
MAX_FRUITLESS_EVENTS = 50_000

# Lowest pT of the hard process, as a fraction of the lowest jet pT; it loses 1 to 4 % of the jets.
HARD_PT_FRACTION = 0.75


@dataclass(frozen=True)
class JetSelection:
    """The jets to keep: pT in GeV."""

    pt_min: float = 500.0
    pt_max: float = 1000.0


def simulate_batches(
    process: Process,
    detector: Detector,
    selection: JetSelection,
    seed: np.random.SeedSequence,
    *,
    extras: Collection[str] = (),
) -> Iterator[Table]:
    """Yield tables of jets forever; the same seed gives the same jets, with or without extras.

    Each table has the jets of one batch of events, possibly none.
    """
    generator_seed, detector_seed = seed.spawn(2)
    random = np.random.default_rng(detector_seed)
    generator = Generator(
        process,
        int(generator_seed.generate_state(1)[0]),
        HARD_PT_FRACTION * selection.pt_min,
        JetWindow(selection.pt_min, ABS_ETA_MAX),
    )
    model = DetectorModel(detector)
    while True:
        events = generator.next_events(EVENTS_PER_BATCH)
        candidates = model.respond(events, random)
        jets = find_jets(candidates, len(events), selection.pt_min, selection.pt_max)
        matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
        yield {
            **jet_table(events, candidates, jets, matches, process),
            **extra_branches(events, candidates, jets, matches, extras=extras, pt_min=selection.pt_min),
        }


def simulate_jets(
    process: Process,
    detector: Detector,
    selection: JetSelection,
    seed: np.random.SeedSequence,
    num_wanted: int,
    *,
    extras: Collection[str] = (),
) -> Iterator[Table]:
    """Yield tables with `num_wanted` jets in total; asking for more jets only appends to them."""
    remaining, fruitless = num_wanted, 0
    for table in simulate_batches(process, detector, selection, seed, extras=extras):
        found = num_jets(table)
        fruitless = 0 if found else fruitless + EVENTS_PER_BATCH
        if fruitless >= MAX_FRUITLESS_EVENTS:
            raise NumericalError(
                f"{process.file_prefix}: no jet in {fruitless} events; change the detector card, or the pT "
                f"range ({selection.pt_min:g} to {selection.pt_max:g} GeV)"
            )
        if found >= remaining:
            yield {name: take(column, np.arange(remaining)) for name, column in table.items()}
            return
        remaining -= found
        yield table  # also without jets: progress can then be reported, and a signal heeded
