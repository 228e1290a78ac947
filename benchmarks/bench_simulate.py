"""Speed of `partt simulate` on one core, beside Pythia alone for the same process in the same run.

    python benchmarks/bench_simulate.py [--rounds 8] [--classes Hbb QCD ...]

Blocks of events, A B A B: A is Pythia alone (`next`, nothing read out), B the whole chain with all
branches of JetClass, written to a file. Median over the blocks; the first of each is a warm-up. The cost of
`--extra` is measured on the same events, and is not part of the chain.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from partt.data.files.tables import write_table
from partt.data.jagged import num_jets
from partt.simulation.card import load_detector
from partt.simulation.detector.response import DetectorModel
from partt.simulation.extra_branches import extra_branches
from partt.simulation.extras import EXTRAS
from partt.simulation.generator import Generator
from partt.simulation.jet_finding import find_jets
from partt.simulation.jetclass_tree import jet_table
from partt.simulation.pipeline import EVENTS_PER_BATCH, HARD_PT_FRACTION, JetSelection
from partt.simulation.processes import BY_LABEL, LABELS
from partt.simulation.truth_labels import match_jets

STAGES = ["events", "detector", "jets", "labels and branches", "file"]
Result = TypeVar("Result")


def measure(label: str, num_rounds: int) -> dict[str, float]:
    """Return milliseconds per event of each stage and of Pythia alone, and jets per event."""
    process, selection = BY_LABEL[label], JetSelection()
    model, random = DetectorModel(load_detector()), np.random.default_rng(1)
    generator = Generator(process, 1, HARD_PT_FRACTION * selection.pt_min)
    alone, stages, extras, jets_found = [], [], [], 0
    for _ in range(num_rounds + 1):
        start = time.perf_counter()
        generator.skip_events(EVENTS_PER_BATCH)
        alone.append(time.perf_counter() - start)

        seconds: list[float] = []

        def timed(work: Callable[[], Result], seconds: list[float] = seconds) -> Result:
            start = time.perf_counter()
            result = work()
            seconds.append(time.perf_counter() - start)
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


def main() -> None:
    """Measure all classes and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--classes", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument("--json", type=Path, default=Path(__file__).with_name("simulate.json"))
    options = parser.parse_args()
    print(
        "| "
        + " | ".join(["class", "Pythia alone, events/s", "partt, events/s", "ratio", "jets/s", *STAGES])
        + " | "
        + " | ".join(f"--extra {extra}" for extra in EXTRAS)
        + " |"
    )
    print("|" + "---|" * (5 + len(STAGES) + len(EXTRAS)))
    results = {}
    for label in options.classes:
        one = results[label] = measure(label, options.rounds)
        rate = 1000 / one["whole chain"]
        cells = [label, f"{1000 / one['Pythia alone']:.0f}", f"{rate:.0f}", f"{one['ratio']:.2f}"]
        cells += [f"{rate * one['jets per event']:.1f}", *(f"{one[stage]:.2f} ms" for stage in STAGES)]
        cells += [f"{100 * one[f'--extra {extra}, fraction']:+.1f} %" for extra in EXTRAS]
        print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\nmean ratio: {np.mean([one['ratio'] for one in results.values()]):.3f}")
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
