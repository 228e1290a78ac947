"""`partt simulate`: make JetClass-style jets with Pythia 8 and a fast detector simulation."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from partt.cli.arguments import count, few_positive, positive
from partt.cli.screen import progress_bar
from partt.simulation.extras import EXTRAS
from partt.simulation.processes import LABELS

EPILOG = """\
examples:
  partt simulate --out jets --jets 10000 --workers 2
  partt simulate --out jets --jets 20000 --workers 2        # adds jets
  partt simulate --out study --jets 5000 --classes Hbb QCD --card my_detector.yaml
  partt simulate --out jets --jets 100000 --split train=0.8,val=0.1,test=0.1
  partt simulate --out masses --jets 5000 --classes Hbb Wqq --mass-range 30:250 --extra vertices generator

The same command resumes an interrupted simulation. The default card, to copy and change, is
partt/simulation/cards/jetclass.yaml; docs/reference/simulation.md describes it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="folder for the files")
    parser.add_argument("--jets", metavar="N", type=positive, required=True, help="jets of each class")
    parser.add_argument("--classes", nargs="+", action="extend", choices=LABELS, metavar="CLASS",
                        help=f"classes to make (default: all of {' '.join(LABELS)})")  # fmt: skip
    parser.add_argument("--jets-per-file", metavar="N", type=positive, default=10_000,
                        help="jets in each file, at most (default: 10000)")  # fmt: skip
    parser.add_argument("--split", type=_splits, metavar="NAME=FRACTION,...",
                        help="divide the jets between folders: train=0.8,val=0.1,test=0.1")  # fmt: skip
    parser.add_argument("--pt-min", metavar="GEV", type=float, default=500.0,
                        help="smallest pT of a jet (default: 500)")  # fmt: skip
    parser.add_argument("--pt-max", metavar="GEV", type=float, default=1000.0,
                        help="largest pT of a jet (default: 1000)")  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=count, default=1,
                        help="the same seed gives the same jets (default: 1)")  # fmt: skip
    parser.add_argument("--card", metavar="FILE", type=Path,
                        help="detector card, a YAML file (default: that of JetClass)")  # fmt: skip
    extras = "; ".join(f"{name} ({branches})" for name, branches in EXTRAS.items())
    parser.add_argument("--extra", nargs="+", action="extend", choices=list(EXTRAS), default=[],
                        metavar="EXTRA",
                        help=f"also write branches that JetClass does not have: {extras}")  # fmt: skip
    parser.add_argument("--mass-range", type=_masses, metavar="LOW:HIGH",
                        help="masses of H, W and Z in GeV, like 30:250 (default: as measured)")  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", type=few_positive, default=1, metavar="N", help="local processes (default: 1)"
    )
    where.add_argument(  # the name that --workers had before
        "--jobs", dest="workers", type=few_positive, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )
    where.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="make the files on a dask cluster")


def run(options: argparse.Namespace) -> int:
    """Simulate, and show the progress and the number of files."""
    from partt.jobs.stop_signals import STOPPED, stop_on_signal
    from partt.simulation.simulate import RERUN, simulate

    with stop_on_signal() as should_stop, progress_bar("simulating", unit="jets") as progress:
        result = simulate(
            options.out,
            jets=options.jets,
            classes=options.classes or LABELS,
            jets_per_file=options.jets_per_file,
            split=options.split,
            pt_min=options.pt_min,
            pt_max=options.pt_max,
            seed=options.seed,
            card=options.card,
            extra=options.extra,
            mass_range=options.mass_range,
            workers=options.workers,
            scheduler=options.scheduler,
            progress=progress,
            should_stop=should_stop,
        )
    rate = f", {result.jets_per_second:.1f} jets/s" if result.jets_per_second is not None else ""
    files = "file" if result.files_made == 1 else "files"
    print(
        f"{result.folder}: {result.files_made} {files} made ({result.jets_made} jets{rate}), "
        f"{result.files_kept} kept"
    )
    if result.stopped:
        print(f"stopped by a signal: {RERUN}", file=sys.stderr)
    return STOPPED if result.stopped else 0


def _masses(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected low:high, found {text!r}") from None
    return low, high


def _splits(text: str) -> Mapping[str, float]:
    splits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, fraction = part.partition("=")
        if name in splits:
            raise argparse.ArgumentTypeError(f"{name!r} is there twice")
        try:
            splits[name] = float(fraction)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"expected name=fraction, found {part!r}")
    return splits
