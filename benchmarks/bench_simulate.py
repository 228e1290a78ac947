"""Speed of `partt simulate` on one core, beside Pythia alone for the same process in the same run.

    python benchmarks/bench_simulate.py [--rounds 8] [--classes Hbb QCD ...]

CPU time of blocks of events, A B A B: A is Pythia alone (`next`, nothing read out), B the whole chain with
all branches of JetClass, written to a file. Medians; the first block of each is a warm-up. The cost of
`--extra` is measured on the same events, and is not part of the chain. Both leave out events that cannot give
a wanted jet; what that gains in jets per second, and loses in jets, is measured with other events.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from partt.data.files.tables import write_table
from partt.data.jagged import num_jets
from partt.simulation.card import load_detector
from partt.simulation.detector.response import DetectorModel
from partt.simulation.early_veto import IN_A_DECAY, EarlyVeto, JetWindow
from partt.simulation.extra_branches import extra_branches
from partt.simulation.extras import EXTRAS
from partt.simulation.generator import Generator, from_pythia, start_pythia
from partt.simulation.jet_finding import ABS_ETA_MAX, find_jets
from partt.simulation.jetclass_tree import jet_table
from partt.simulation.pipeline import EVENTS_PER_BATCH, HARD_PT_FRACTION, JetSelection
from partt.simulation.processes import BY_LABEL, LABELS, Process
from partt.simulation.truth_labels import match_jets

STAGES = ["events", "detector", "jets", "labels and branches", "file"]
Result = TypeVar("Result")


def measure(label: str, num_rounds: int) -> dict[str, float]:
    """Return milliseconds per event of each stage and of Pythia alone, and jets per event."""
    process, selection = BY_LABEL[label], JetSelection()
    model, random = DetectorModel(load_detector()), np.random.default_rng(1)
    window = JetWindow(selection.pt_min, ABS_ETA_MAX)
    generator = Generator(process, 1, HARD_PT_FRACTION * selection.pt_min, window)
    alone, stages, extras, jets_found = [], [], [], 0
    for _ in range(num_rounds + 1):
        start = time.process_time()
        generator.skip_events(EVENTS_PER_BATCH)
        alone.append(time.process_time() - start)

        seconds: list[float] = []

        def timed(work: Callable[[], Result], seconds: list[float] = seconds) -> Result:
            start = time.process_time()
            result = work()
            seconds.append(time.process_time() - start)
            return result

        events = timed(lambda: generator.next_events(EVENTS_PER_BATCH))
        candidates = timed(lambda: model.respond(events, random))  # noqa: B023
        jets = timed(lambda: find_jets(candidates, len(events), selection.pt_min, selection.pt_max))  # noqa: B023
        matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
        table = timed(lambda: jet_table(events, candidates, jets, matches, process))  # noqa: B023
        with tempfile.TemporaryDirectory() as folder:
            timed(lambda: write_table(Path(folder) / "jets.root", table))  # noqa: B023
        for extra in EXTRAS:
            timed(
                lambda: extra_branches(
                    events,  # noqa: B023
                    candidates,  # noqa: B023
                    jets,  # noqa: B023
                    matches,  # noqa: B023
                    extras=[extra],  # noqa: B023
                    pt_min=selection.pt_min,
                )
            )
        stages.append(seconds[: len(STAGES)])
        extras.append(seconds[len(STAGES) :])
        jets_found += num_jets(table)
    per_event = 1000 / EVENTS_PER_BATCH
    found = dict(zip(STAGES, np.median(stages[1:], axis=0) * per_event, strict=True))
    for extra, cost in zip(
        EXTRAS, np.median(np.divide(extras, np.sum(stages, axis=1)[:, None]), axis=0), strict=True
    ):
        found[f"--extra {extra}, fraction"] = cost
    found["whole chain"] = float(np.median(np.sum(stages[1:], axis=1)) * per_event)
    found["Pythia alone"] = float(np.median(alone[1:]) * per_event)
    found["ratio"] = float(np.median(np.array(alone[1:]) / np.sum(stages[1:], axis=1)))
    found["jets per event"] = jets_found / ((num_rounds + 1) * EVENTS_PER_BATCH)
    return {name: float(value) for name, value in found.items()}


class Witness(EarlyVeto):
    """Notes for each hard process what would be vetoed, and vetoes nothing."""

    def __init__(self, process: Process, window: JetWindow) -> None:
        super().__init__(process, window)
        self.would_veto: list[bool] = []

    def doVetoProcessLevel(self, record: Any) -> bool:  # noqa: N802
        """Begin an event."""
        vetoed = super().doVetoProcessLevel(record)
        if not vetoed:
            self.would_veto.append(False)
        return vetoed

    def doVetoPT(self, position: int, event: Any) -> bool:  # noqa: N802
        """Note the decision."""
        if position != IN_A_DECAY:
            self.would_veto[-1] = super().doVetoPT(position, event)
        return False


def measure_veto(label: str, num_rounds: int) -> dict[str, float]:
    """Return which fractions of the events, and of those with a wanted jet, the early veto drops."""
    process, selection = BY_LABEL[label], JetSelection()
    model, random = DetectorModel(load_detector()), np.random.default_rng(2)
    witness = Witness(process, JetWindow(selection.pt_min, ABS_ETA_MAX))
    pythia = start_pythia(process, 2, HARD_PT_FRACTION * selection.pt_min, witness)
    good = []
    for _ in range(num_rounds):
        events = from_pythia(pythia.nextBatch(EVENTS_PER_BATCH))
        if len(events) != EVENTS_PER_BATCH:  # an event failed; which one is not known
            del witness.would_veto[-EVENTS_PER_BATCH:]
            continue
        jets = find_jets(model.respond(events, random), len(events), selection.pt_min, selection.pt_max)
        matches = match_jets(events, process, jets.event, jets.eta, jets.phi)
        good.append(np.isin(np.arange(len(events)), jets.event[matches.code > 0]))
    with_jet, vetoed = np.concatenate(good), np.array(witness.would_veto)
    return {
        "events dropped early": float(vetoed.mean()),
        "events with a jet": int(with_jet.sum()),
        "of them dropped early": int((with_jet & vetoed).sum()),
    }


def main() -> None:
    """Measure all classes and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--veto-rounds", type=int, default=30)
    parser.add_argument("--classes", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("simulate.json"))
    options = parser.parse_args()
    print(
        "| "
        + " | ".join(
            [
                "class",
                "Pythia alone, events/s",
                "partt, events/s",
                "ratio",
                "jets/s",
                "dropped",
                "lost",
                *STAGES,
            ]
        )
        + " | "
        + " | ".join(f"--extra {extra}" for extra in EXTRAS)
        + " |"
    )
    print("|" + "---|" * (7 + len(STAGES) + len(EXTRAS)))
    results = {}
    for label in options.classes:
        one = results[label] = measure(label, options.rounds) | measure_veto(label, options.veto_rounds)
        rate = 1000 / one["whole chain"]
        cells = [label, f"{1000 / one['Pythia alone']:.0f}", f"{rate:.0f}", f"{one['ratio']:.2f}"]
        lost = f"{one['of them dropped early']} of {one['events with a jet']}"
        cells += [f"{rate * one['jets per event']:.1f}", f"{100 * one['events dropped early']:.0f} %", lost]
        cells += [*(f"{one[stage]:.2f} ms" for stage in STAGES)]
        cells += [f"{100 * one[f'--extra {extra}, fraction']:+.1f} %" for extra in EXTRAS]
        print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\nmean ratio: {np.mean([one['ratio'] for one in results.values()]):.3f}")
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
