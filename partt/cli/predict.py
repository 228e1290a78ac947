"""`partt predict`: the scores of new jets, one row for each entry of their files, in order."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

import partt
from partt.cli.arguments import add_bad_files, add_input, add_network, add_overwrite, few_positive
from partt.cli.screen import make_console, make_table, print_table, progress_bar
from partt.errors import ConfigError
from partt.jobs.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from partt.model.tasks import Task
    from partt.prediction.predict import PredictResult
    from partt.tagger.tagger import Tagger

STOPPED = 75  # exit code: stopped by a signal; complete outputs are kept

MAX_WARNINGS = 6  # variables outside of the training domain that are listed

DEMO_TAGGER = "jetclass-200k"

EXAMPLES = """\
examples:
  partt predict --tagger jetclass-200k new_events.root --out scores
  partt predict --tagger runs/first new_events.root --out scores
  partt predict --tagger runs/first 'jets/*.root' --out scores --discriminant Hbb_vs_QCD --keep 'jet_*'
  partt predict --tagger tagger.safetensors root://host//store/jets_0.root --out scores.parquet
  partt predict --tagger tagger.safetensors 'jets/*.root' --out scores --scheduler tcp://host:8786
  partt predict --tagger runs/a runs/b runs/c 'jets/*.root' --out scores     # an ensemble
  partt predict --engine onnx --tagger tagger.onnx 'jets/*.root' --out scores

Every entry of an input is a row of its output, in the same order; jets that are not selected, or whose inputs
are not finite, have NaN scores. Complete outputs are kept: the same command resumes an interrupted job.
docs/reference/predict.md lists the columns.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt predict`."""
    parser.epilog = EXAMPLES
    parser.add_argument("files", metavar="FILES", nargs="*", help="NAME:GLOB, GLOB, @LIST or URL")
    parser.add_argument(
        "--tagger",
        metavar="TAGGER",
        nargs="+",
        action="extend",
        help="a tagger file, a run folder, an exported tagger (.onnx), or a name listed by `partt taggers`; "
        "several are an ensemble; of a folder of `partt train --seeds` each seed is used, for FOLDER/seed_N",
    )
    add_network(parser)
    add_input(parser)
    parser.add_argument("--demo", action="store_true", help="tag the sample jets shipped with partt")
    parser.add_argument(
        "--out",
        metavar="FOLDER_OR_FILE",
        type=Path,
        default=Path("scores"),
        help="folder, or a .root or .parquet file for a single input (default: scores)",
    )
    add_overwrite(parser)
    parser.add_argument("--format", choices=["root", "parquet"], help="format of the outputs (default: root)")
    parser.add_argument(
        "--discriminant",
        dest="discriminants",
        metavar="S_vs_B",
        action="append",
        default=[],
        help="add s_S / (s_S + s_B), like Hbb_vs_QCD or Hbb+Hcc_vs_QCD; may be given several times",
    )
    parser.add_argument(
        "--keep",
        metavar="PATTERN",
        nargs="+",
        action="extend",
        default=[],
        help="copy matching branches of the input too, like 'jet_*'",
    )
    parser.add_argument(
        "--embeddings", action="store_true", help="add the embedding of each jet: what the heads see"
    )
    parser.add_argument("--apply-selection", action="store_true", help="leave out jets that are not selected")
    add_bad_files(parser)
    parser.add_argument(
        "--engine",
        choices=["torch", "onnx"],
        help="torch runs tagger files, onnx exported taggers (default: by the suffix of the file)",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    parser.add_argument("--threads", metavar="N", type=few_positive, help="CPU threads (default: all cores)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--workers", metavar="N", type=few_positive, help="dask: use N processes on this machine"
    )
    where.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="dask: use the workers of a cluster")


def run(options: argparse.Namespace) -> int:
    """Predict, show progress and print the balance."""
    from partt.prediction.outputs import is_file_name
    from partt.tagger.loading import load_tagger, seed_folders

    files, names = _what_to_tag(options)
    seeds = seed_folders(names[0]) if len(names) == 1 else []
    if seeds and is_file_name(options.out):
        raise ConfigError(
            f"--out {options.out}: {names[0]} has {len(seeds)} seeds: give a folder for all scores"
        )
    runs = [([str(seed)], options.out / seed.name) for seed in seeds] or [(names, options.out)]
    for taggers, out in runs:
        tagger = load_tagger(taggers, options.engine, options.network)
        if (code := _predict(options, tagger, files, out)) != 0:
            return code
    return 0


def _predict(options: argparse.Namespace, tagger: "Tagger", files: list[str], out: Path) -> int:
    from partt.jobs.devices import num_cores
    from partt.jobs.stop_signals import stop_on_signal
    from partt.prediction.predict import predict

    tagger.move_to(options.device)
    with stop_on_signal() as should_stop, _progress() as (opening, progress):
        result = predict(
            tagger,
            files,
            out,
            discriminants=options.discriminants,
            input=options.input,
            tree=options.tree,
            keep=options.keep,
            embeddings=options.embeddings,
            apply_selection=options.apply_selection,
            overwrite=options.overwrite,
            format=options.format,
            on_bad_file=options.on_bad_file,
            max_bad_fraction=options.max_bad_fraction,
            num_threads=options.threads or num_cores(),
            num_workers=options.workers,
            scheduler=options.scheduler,
            opening=opening,
            progress=progress,
            should_stop=should_stop,
        )
    _print(result, make_console())
    return STOPPED if result.stopped else 0


@contextmanager
def _progress() -> Iterator[tuple[Progress, Progress]]:
    """Yield callbacks for opened files and for jets; one bar is shown at a time."""
    with ExitStack() as first, progress_bar("predicting", unit="jets") as jets:
        files = first.enter_context(progress_bar("opening", unit="files"))

        def progress(done: int, total: int) -> None:
            first.close()
            jets(done, total)

        yield files, progress


def _what_to_tag(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the files and the taggers to use: words after --tagger are taggers up to the first other one."""
    from partt.tagger.loading import is_tagger_name

    words = options.tagger or []
    others = [number for number, word in enumerate(words) if number and not is_tagger_name(word)]
    names, files = words[: others[0]] if others else words, options.files
    files = [*files, *words[len(names) :]]
    if options.demo and files:
        raise ConfigError("--demo tags the sample shipped with partt: give FILES or --demo, not both")
    if not options.demo and not files:
        raise ConfigError("no files: name some, for example 'jets/*.root', or tag the sample with --demo")
    if not names and not options.demo:
        raise ConfigError(
            "no tagger: give --tagger a tagger file, a run folder or a name listed by `partt taggers`"
        )
    if not options.demo:
        return files, names
    return [str(path) for path in partt.sample_files()], names or [DEMO_TAGGER]


def _print(result: "PredictResult", console: "Console") -> None:
    balance = result.balance
    kept = sum(output.was_complete for output in result.outputs)
    rate = result.jets_per_second
    title = "stopped early" if result.stopped else "predicted"
    table = make_table("", title=title, numbers=[""], show_header=False)
    if balance.events:
        table.add_row("events in", f"{balance.events:,}")
    table.add_row("jets in" if balance.events else "entries in", f"{balance.entries:,}")
    table.add_row("scored", f"{balance.scored:,}")
    table.add_row("not selected", f"{balance.not_selected:,}")
    table.add_row("bad (not finite)", f"{balance.bad:,}")
    table.add_row("outputs", f"{len(result.outputs):,}" + (f" ({kept:,} already complete)" if kept else ""))
    if result.regressions:
        table.add_row("regressions", escape(", ".join(map(_with_unit, result.regressions))))
    table.add_row("files skipped", f"{len(result.bad_files):,}")
    if rate is not None:
        table.add_row("jets/s", f"{rate:,.0f}")
    print_table(console, table)
    for file in result.bad_files:
        _line(console, f"skipped: {file.reason}")
    for column in result.left_out:
        _line(console, f"not in the outputs: {column}")
    if result.outside:
        console.print("[yellow]warning[/] many jets are outside the training domain of the tagger:")
        for text in result.outside[:MAX_WARNINGS]:
            _line(console, f"  {text}")
        rest = len(result.outside) - MAX_WARNINGS
        others = f"and {rest} more variables; " if rest > 0 else ""
        _line(console, f"  {others}`partt check --for TAGGER FILES` compares all variables")
    if result.stopped:
        _line(console, f"{result.folder}: run the same command to make the remaining outputs")
    elif len(result.outputs) == 1:
        _line(console, f"{result.outputs[0].path}, {result.folder / 'predict.json'}")
    else:
        _line(console, f"{result.folder}: {len(result.outputs)} outputs, predict.json")


def _with_unit(task: "Task") -> str:
    return f"{task.name} ({task.unit})" if task.unit else task.name


def _line(console: "Console", text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
