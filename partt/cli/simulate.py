"""`partt simulate`: make JetClass-style jets with Pythia and a fast detector."""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from partt.cli.arguments import count, positive
from partt.cli.screen import progress_bar
from partt.errors import ConfigError
from partt.simulation.processes import LABELS

EPILOG = """\
examples:
  partt simulate --out jets --jets 10000 --jobs 2
  partt simulate --out jets --jets 20000 --jobs 2           (extends it)
  partt simulate --out study --jets 5000 --classes Hbb QCD --card my_detector.yaml
  partt simulate --out jets --jets 100000 --split train=0.8,val=0.1,test=0.1

An interrupted command continues when it is given again. The default card, to copy and change, is
partt/simulation/cards/jetclass.yaml; docs/reference/simulation.md describes it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--jets", type=positive, required=True, help="jets of each class")
    parser.add_argument("--classes", nargs="+", choices=LABELS, default=list(LABELS), metavar="CLASS",
                        help=f"classes to make (default: all of {' '.join(LABELS)})")  # fmt: skip
    parser.add_argument("--jets-per-file", type=positive, default=10_000, help="(default: 10000)")
    parser.add_argument("--split", type=_splits, metavar="NAME=FRACTION,...",
                        help="share the jets out between folders: train=0.8,val=0.1,test=0.1")  # fmt: skip
    parser.add_argument("--pt-min", type=float, default=500.0, help="of the jets, GeV (default: 500)")
    parser.add_argument("--pt-max", type=float, default=1000.0, help="of the jets, GeV (default: 1000)")
    parser.add_argument("--seed", type=count, default=1, help="the same seed, the same jets (default: 1)")
    parser.add_argument("--card", type=Path, help="detector card (default: the one of JetClass)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=positive, default=1, help="local processes (default: 1)")
    where.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="make the files on a dask cluster")


def run(arguments: argparse.Namespace) -> int:
    """Run the verb."""
    try:
        from partt.simulation.card import load_detector
        from partt.simulation.pipeline import JetSelection
        from partt.simulation.production import Production
        from partt.simulation.simulate import simulate
        from partt.simulation.workers import RERUN
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'partt[simulate]'") from error

    production = Production(
        out=arguments.out,
        num_jets=arguments.jets,
        detector=load_detector(arguments.card),
        seed=arguments.seed,
        labels=tuple(arguments.classes),
        jets_per_file=arguments.jets_per_file,
        selection=JetSelection(arguments.pt_min, arguments.pt_max),
        splits=arguments.split,
    )
    start = time.monotonic()
    total, done = production.num_jets * len(production.labels), dict[str, int]()
    with progress_bar("simulating", unit="jets") as show:

        def progress(name: str, num_done: int) -> None:
            done[name] = num_done
            show(sum(done.values()), total)

        try:
            outcome = simulate(production, arguments.jobs, arguments.scheduler, progress)
        except KeyboardInterrupt:
            print(f"{arguments.out}: {RERUN}", file=sys.stderr)
            raise
    seconds = time.monotonic() - start
    rate = f", {outcome.jets_made / seconds:.1f} jets/s" if outcome.jets_made else ""
    print(
        f"{arguments.out}: {outcome.files_made} files made ({outcome.jets_made} jets{rate}), "
        f"{outcome.files_kept} kept"
    )
    return 0


def _splits(text: str) -> Mapping[str, float]:
    splits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, fraction = part.partition("=")
        try:
            splits[name] = float(fraction)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"expected name=fraction, found {part!r}")
    return splits
