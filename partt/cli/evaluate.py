"""`partt evaluate`: the results table, figures and working points of one or several taggers."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from partt.cli.arguments import add_overwrite, add_tree
from partt.cli.screen import fitting_tables, make_console, print_table, progress_bar
from partt.errors import ConfigError

if TYPE_CHECKING:
    from partt.evaluation.regression_table import RegressionTable
    from partt.evaluation.results import Evaluation

MAX_LINES = 24  # of the results table on the screen

EPILOG = """\
examples:
  partt evaluate 'scores/*.root' --out report
  partt evaluate part.root --compare ParticleNet=particlenet.root --published --out report
  partt evaluate seed1.root seed2.root seed3.root --name ParT --out report     # same jets: seeds
  partt evaluate scores.root --signal Hbb Hcc --background QCD:0.9,Zqq:0.1 --out report
  partt evaluate scores.root --working-points eps_s=0.5,0.8 eps_b=0.01 --bins jet_pt=500,750,1000 --out report
  partt evaluate masses.root --baseline mass_factor=jet_sdmass --bins jet_pt=500,750,1000 --out report

The folder gets report.html (one file, works offline), figures as PDF and PNG, table.md, table.tex,
metrics.csv, metrics.json, working_points.json and efficiencies.json (for correctionlib);
for regressions also regressions.md, regressions.tex and regressions.csv.
Definitions: docs/reference/evaluation.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = EPILOG
    parser.add_argument(
        "scores",
        metavar="SCORES",
        nargs="+",
        help="prediction files of partt or weaver, ROOT or parquet: GLOB, @LIST or URL",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="REPORT", help="folder for the report")
    add_overwrite(parser)
    add_tree(parser)
    parser.add_argument(
        "--name", metavar="TEXT", help="name of the model (default: that of its tagger, or of the first file)"
    )
    parser.add_argument(
        "--preset",
        choices=["jetclass", "top", "qg"],
        help="which rejections to quote (default: by the names of the classes)",
    )
    parser.add_argument(
        "--signal",
        metavar="CLASS",
        nargs="+",
        action="extend",
        default=[],
        help="signal classes (default: all but the background)",
    )
    parser.add_argument(
        "--background",
        metavar="CLASS[:FRACTION],...",
        nargs="+",
        action="extend",
        default=[],
        help="background classes (default: QCD); scores of several are added, times their fractions",
    )
    parser.add_argument("--weights", metavar="NAME", help="column with the weights of jets")
    parser.add_argument(
        "--bins",
        metavar="NAME=EDGE,...",
        nargs="+",
        action="extend",
        default=[],
        help="bins of an observer (default: jet_pt and jet_eta, if present; jet_nparticles for regressions)",
    )
    parser.add_argument(
        "--baseline",
        metavar="REGRESSION=NAME",
        nargs="+",
        action="extend",
        default=[],
        help="observer to show beside a regression, given by its name or its target",
    )
    parser.add_argument("--mass", metavar="NAME", help="observer for mass sculpting (default: jet_sdmass)")
    parser.add_argument(
        "--working-points",
        metavar="EPS=VALUE,...",
        nargs="+",
        action="extend",
        default=[],
        help="signal or background efficiencies of cuts, like eps_s=0.5,0.8 eps_b=0.01 (default: those of "
        "the results table)",
    )
    parser.add_argument(
        "--compare",
        metavar="NAME=SCORES",
        nargs="+",
        action="extend",
        default=[],
        help="other models to compare with",
    )
    parser.add_argument(
        "--published", action="store_true", help="add published results, from other data sets"
    )
    parser.add_argument(
        "--run",
        dest="run_folder",
        type=Path,
        metavar="FOLDER",
        help="run folder of the training, to draw its curves",
    )
    parser.add_argument(
        "--label",
        default="",
        metavar="TEXT",
        help="text above the figures; the first word is the experiment: 'CMS Simulation Preliminary'",
    )


def run(options: argparse.Namespace) -> int:
    """Evaluate and print the results table."""
    from partt.evaluation.evaluate import evaluate
    from partt.evaluation.settings import parse_backgrounds, parse_baselines, parse_bins

    with progress_bar("evaluating", unit="jets") as progress:
        found = evaluate(
            options.scores,
            tree=options.tree,
            out=options.out,
            name=options.name,
            preset=options.preset,
            signals=options.signal,
            backgrounds=parse_backgrounds(options.background),
            weights=options.weights,
            bins={name: edges.tolist() for name, edges in parse_bins(options.bins).items()},
            mass=options.mass,
            baselines=parse_baselines(options.baseline),
            working_points=options.working_points,
            compare=_models(options.compare),
            published=options.published,
            run_folder=options.run_folder,
            label=options.label,
            command=options.command,
            overwrite=options.overwrite,
            progress=progress,
        )
    console = make_console()
    if found.table.rows:
        for one in _screen_tables(found, console):
            print_table(console, one)
        if (rest := len(found.table.columns) - len(_shown_columns(found))) > 0:
            print(f"and {rest} more: {options.out / 'table.md'}")
    for table in found.regression_tables:
        for one in _regression_tables(table, console):
            print_table(console, one)
    for name, seeds in found.models.items():
        for reason, count in seeds[0].left_out.items():
            print(f"{name}: {count:,} of {seeds[0].num_rows:,} rows left out: {reason}")
        for note in seeds[0].notes:
            print(f"{name}: {note}")
    print(f"report: {options.out / 'report.html'}")
    return 0


def _models(texts: list[str]) -> dict[str, list[str]]:
    """Read NAME=SCORES; a repeated name adds files."""
    models: dict[str, list[str]] = {}
    for text in texts:
        name, equals, location = text.partition("=")
        if not (name and equals and location):
            raise ConfigError(f"--compare {text}: should be NAME=SCORES, like ParticleNet=scores.root")
        models.setdefault(name, []).append(location)
    return models


def _shown_columns(found: "Evaluation") -> list[int]:
    """Return which numbers the screen shows, by position: of many, those of the discriminants in figures."""
    from partt.evaluation.shown import shown_discriminants

    columns = found.table.columns
    if len(columns) <= MAX_LINES or found.main.classification is None:
        return list(range(len(columns)))
    shown = [one.discriminant for one in shown_discriminants(found.main.classification).values()]
    return [n for n, one in enumerate(columns) if one.discriminant is None or one.discriminant in shown]


def _screen_tables(found: "Evaluation", console: Console) -> Iterator[Table]:
    """Yield the table with a line for each number; published rows are only in the report."""
    from partt.evaluation.table_formats import plain_text, row_title
    from partt.pages.number_text import cell_text

    shown = _shown_columns(found)
    lines = [found.table.columns[number].title for number in shown]
    columns = [
        (row_title(row), [plain_text(cell_text(row.cells[number])) for number in shown])
        for row in found.table.rows
        if not row.source
    ]
    yield from fitting_tables(console, lines, columns, title=r"68 % intervals \[background jets that pass]")


def _regression_tables(results: "RegressionTable", console: Console) -> Iterator[Table]:
    """Show bias and width of all jets, the widths of each class, and the coverage."""
    from partt.evaluation.regression_formats import predictor_title
    from partt.evaluation.responses import ALL_JETS
    from partt.evaluation.table_formats import plain_text
    from partt.pages.number_text import cell_text

    what = "response" if results.is_ratio else "residual"
    lines: list[str] = []
    cells: list[list[str]] = []  # by line
    for row in (row for row in results.rows if not row.place.observer):
        biases, widths = (
            [plain_text(cell_text(cell)) for cell in cells_of] for cells_of in (row.biases, row.widths)
        )
        if row.place.group == ALL_JETS:
            lines += ["bias", "width"]
            cells += [biases, widths]
        else:
            lines.append(f"width, {row.place.group}")
            cells.append(widths)
    for one in (one for one in results.coverage if one.group == ALL_JETS):
        lines.append(one.title)
        found = [""] * len(results.predictors)
        found[one.predictor] = plain_text(cell_text(one.cell))
        cells.append(found)
    columns = [
        (predictor_title(predictor), [line[number] for line in cells])
        for number, predictor in enumerate(results.predictors)
    ]
    yield from fitting_tables(
        console, lines, columns, title=escape(f"{what} of {results.target}, 68 % intervals")
    )
