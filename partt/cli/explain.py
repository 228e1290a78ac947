"""`partt explain`: which inputs of a tagger matter, where its network looks, and jets to look at."""

import argparse
import os
from pathlib import Path

from rich.markup import escape

from partt.cli.arguments import add_network, add_overwrite, few_positive, positive
from partt.cli.screen import make_console, make_table, print_table, progress_bar
from partt.errors import ConfigError

SHOWN = 12  # of the inputs that matter most

EPILOG = """\
examples:
  partt explain jetclass-200k 'jets/*.root' --out explanation
  partt explain runs/first 'test/*.root'                       # to runs/first/explanation
  partt explain tagger.onnx 'jets/*.root' --out explanation    # permutation importance only
  partt explain runs/first 'test/*.root' --selection 'jet_pt > 700' --group 'angles=part_deta,part_dphi'

The folder gets explanation.html (one file, works offline), explanation.json with every number, and figures
as PDF and PNG; `partt show` draws single jets. The jets need labels. Definitions: docs/reference/explain.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt explain`."""
    parser.epilog = EPILOG
    parser.add_argument(
        "tagger",
        metavar="TAGGER",
        help="a tagger file, a run folder, an exported tagger (.onnx), or a name listed by `partt taggers`",
    )
    parser.add_argument("files", metavar="FILES", nargs="+", help="labelled jets: GLOB, @LIST or URL")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for the page (default: explanation, in the run folder if the tagger is one)",
    )
    add_overwrite(parser)
    add_network(parser)
    parser.add_argument(
        "--jets", metavar="N", type=positive, default=5000, help="jets to use, at most (default: 5000)"
    )
    parser.add_argument("--selection", metavar="FORMULA", help="use only jets that pass, like 'jet_pt > 700'")
    parser.add_argument(
        "--group",
        metavar="NAME=INPUT,...",
        nargs="+",
        action="extend",
        default=[],
        help="further inputs to shuffle together; kinematics, types and displacements are known by name",
    )
    parser.add_argument("--threads", metavar="N", type=few_positive, help="CPU threads (default: all cores)")


def run(options: argparse.Namespace) -> int:
    """Explain, show progress and print what matters most."""
    from partt.explanation.explain import ExplainLimits, explain
    from partt.jobs.devices import num_cores
    from partt.pages.explanation_link import EXPLANATION_FOLDER
    from partt.pages.number_text import Cell, cell_text

    is_run = os.path.isdir(options.tagger)  # noqa: PTH112 - Path.is_dir raises where a name is too long
    out = options.out or (Path(options.tagger) if is_run else Path()) / EXPLANATION_FOLDER
    with progress_bar("explaining", unit="steps") as progress:
        found = explain(
            options.tagger,
            options.files,
            out=out,
            groups=_groups(options.group),
            selection=options.selection,
            limits=ExplainLimits(jets=options.jets),
            network_file=options.network,
            num_threads=options.threads or num_cores(),
            command=options.command,
            overwrite=options.overwrite,
            progress=progress,
        )
    table = make_table("shuffled", title="loss of AUC, with 68 % intervals", numbers=["loss"])
    for one in sorted(found.importances, key=lambda one: -one.losses.area.loss)[:SHOWN]:
        loss = one.losses.area
        text = cell_text(Cell(loss.loss, loss.low, loss.high))
        table.add_row(escape(one.change.name), f"{text.value} ± {text.up}")
    print_table(make_console(), table)
    for what, why in found.left_out.items():
        print(f"no {what}: {why}")
    print(f"explanation: {out / 'explanation.html'}")
    return 0


def _groups(texts: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for text in texts:
        name, equals, columns = text.partition("=")
        if not (name and equals and columns):
            raise ConfigError(f"--group {text}: should be NAME=INPUT,..., like angles=part_deta,part_dphi")
        if name in groups:
            raise ConfigError(f"--group {text}: there is another group {name}; give each its own name")
        groups[name] = columns.split(",")
    return groups
