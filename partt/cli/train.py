"""`partt train`: train a network on jets, following a recipe."""

import argparse
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from partt.cli.arguments import add_bad_files, add_input, count, few, few_positive, fraction
from partt.cli.exit_codes import exit_code_of
from partt.cli.screen import progress_bar
from partt.errors import ConfigError
from partt.jobs.local_ranks import LOST, run_ranks

if TYPE_CHECKING:
    from partt.jobs.progress import Progress
    from partt.training.events import Event

EXAMPLES = """\
examples:
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --out runs/first --seed 1
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --out runs/first --seed 1 --resume

more:
  partt train jetclass_part_full --train TTBar:'train/TTBar_*.root' QCD:'train/ZJets*.root' --val 'val/*.root'
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --set optimizer.lr=3e-4 --set epochs=20
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --out runs/five --seeds 5 --resume
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --processes 8
  torchrun --standalone --nproc-per-node 4 -m partt train quick --train 'jets/*.root' --val-fraction 0.2

After Ctrl-C, SIGTERM or SIGHUP a run finishes its step, saves everything and ends with exit code 75; a second
signal, at least a second later, ends it at once. A resumed run gives the same result as one that was not
stopped.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt train`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="a YAML file, or the name of a shipped recipe (training/README.md)",
    )
    parser.add_argument(
        "--train",
        metavar="FILES",
        nargs="+",
        action="extend",
        required=True,
        help="files for training: NAME:GLOB, GLOB, @LIST or URL",
    )
    validation = parser.add_mutually_exclusive_group(required=True)
    validation.add_argument("--val", metavar="FILES", nargs="+", action="extend", help="files for validation")
    validation.add_argument(
        "--val-fraction",
        metavar="F",
        type=fraction,
        help="use this fraction of the training entries for validation, chosen at random with the seed",
    )
    add_input(parser)
    parser.add_argument("--out", metavar="RUN", type=Path, help="run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the recipe, such as optimizer.lr=3e-4; can be repeated",
    )
    parser.add_argument(
        "--network",
        metavar="FILE.py",
        type=Path,
        help="your own network instead of the recipe's; its code is run (docs/how-to/own_network.md)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=count, default=1, help="seed of weights, order and split (default: 1)"
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=few_positive,
        help="train N times, with --seed and the next ones, in RUN/seed_1, RUN/seed_2, ...",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in RUN, or start it if there is none"
    )
    parser.add_argument(
        "--init-from",
        metavar="TAGGER",
        type=Path,
        help="start from the weights of a tagger (file, run folder or shipped tagger); the last layer is new "
        "if the classes differ",
    )
    parser.add_argument(
        "--teacher",
        metavar="TAGGER",
        nargs="+",
        action="extend",
        help="learn the scores of a tagger (file, run folder or shipped tagger) of the same classes, or of "
        "several as an ensemble; the key `distillation` of the recipe says how",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    parser.add_argument("--workers", metavar="N", type=few, default=1, help="reading processes (default: 1)")
    parser.add_argument(
        "--threads",
        metavar="N",
        type=few,
        help="CPU threads of each process (default: all cores, but 1 with --processes)",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=few_positive,
        default=1,
        help="share each batch between N processes of this CPU, for which N cores are needed (default: 1)",
    )
    parser.add_argument(
        "--cache",
        metavar="FOLDER",
        type=Path,
        help="keep preprocessed jets here, so that later epochs read no ROOT files",
    )
    add_bad_files(parser)
    parser.add_argument(
        "--on-bad-jet",
        choices=["error", "drop"],
        default="error",
        help="what to do with jets with NaN or infinite inputs: stop, or leave them out (default: error)",
    )


def run(options: argparse.Namespace) -> int:
    """Train, in this process or in several."""
    if options.processes == 1:
        return _train(options)
    if "WORLD_SIZE" in os.environ:
        raise ConfigError(
            "--processes starts its processes itself, but torchrun has done so (WORLD_SIZE is set): leave "
            "one of them out"
        )
    ended = run_ranks(
        options.processes,
        options.threads or 1,
        lambda: exit_code_of(lambda: _train_rank(options), debug=options.debug),
    )
    if ended.message:
        print(ended.message, file=sys.stderr)
    return ended.exit_code


def _train_rank(options: argparse.Namespace) -> int:
    """Train as one of several processes on this CPU."""
    from partt.jobs.devices import choose_device
    from partt.training.distributed import LostProcessError

    if choose_device(options.device).type != "cpu":
        raise ConfigError(
            "--processes shares the cores of a CPU: add --device cpu; for several GPUs use torchrun "
            "(docs/how-to/clusters.md)"
        )
    try:
        return _train(options)
    except LostProcessError:  # whoever waits for all processes says which one ended, and why
        return LOST


def _train(options: argparse.Namespace) -> int:
    """Train, and show the progress."""
    from partt.cli.train_screen import TrainScreen
    from partt.jobs.stop_signals import STOPPED, SignalledError, stop_on_signal
    from partt.training.distributed import world_from_environment
    from partt.training.seeds import train_seeds
    from partt.training.train import train

    chosen = train if options.seeds is None else partial(train_seeds, num_seeds=options.seeds)
    show = world_from_environment().is_first
    with stop_on_signal() as should_stop, ExitStack() as bar, TrainScreen() as screen:
        show_opening: Progress | None = None

        def opening(done: int, total: int) -> None:
            nonlocal show_opening
            if should_stop():
                raise SignalledError("stopped by a signal while opening files; nothing was trained yet")
            if show_opening is None:
                show_opening = bar.enter_context(progress_bar("opening", unit="files", show=show))
            show_opening(done, total)

        def report(event: "Event") -> None:
            nonlocal show_opening
            bar.close()  # one live line at a time
            show_opening = None
            screen.show(event)

        result = chosen(
            options.recipe,
            options.train,
            validation=options.val_fraction if options.val is None else options.val,
            out=options.out,
            overrides=options.overrides,
            input=options.input,
            tree=options.tree,
            seed=options.seed,
            resume=options.resume,
            init_from=options.init_from,
            teacher=options.teacher,
            network_file=options.network,
            device=options.device,
            num_workers=options.workers,
            num_threads=options.threads or (1 if options.processes > 1 else None),
            cache=options.cache,
            on_bad_file=options.on_bad_file,
            max_bad_fraction=options.max_bad_fraction,
            on_bad_jet=options.on_bad_jet,
            opening=opening,
            report=report,
            should_stop=should_stop,
        )
    return STOPPED if result.stopped else 0
