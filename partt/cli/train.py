"""`partt train`: train a network on labelled jets as a recipe says."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from partt.cli.arguments import choose_device, count, fraction, num_cores
from partt.cli.screen import progress_bar

if TYPE_CHECKING:
    from partt.data.config.data_config import DataConfig
    from partt.training.job import TrainingJob
    from partt.training.recipe import Recipe

STOPPED = 75  # exit code: stopped by a signal after saving; the same command with --resume goes on

EXAMPLES = """\
examples:
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --out runs/first --seed 1
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --out runs/first --seed 1 --resume

more:
  partt train jetclass_part_full --train TTBar:'train/TTBar_*.root' QCD:'train/ZJets*.root' --val 'val/*.root'
  partt train quick --train 'jets/*.root' --val-fraction 0.2 --set optimizer.lr=3e-4 --set epochs=20
  torchrun --nproc-per-node 4 -m partt train jetclass_part_full --train 'train/*.root' --val 'val/*.root'

A signal (Ctrl-C, SIGTERM) ends a run after the step it is in, with everything saved and exit code 75; another
one ends it at once. A run that is resumed gives what it would have given without the stop.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `partt train`."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="a YAML file, or the name of one that partt ships (training/README.md)",
    )
    parser.add_argument(
        "--train", metavar="FILES", nargs="+", required=True, help="NAME:GLOB, GLOB, @LIST or URL"
    )
    validation = parser.add_mutually_exclusive_group(required=True)
    validation.add_argument("--val", metavar="FILES", nargs="+", help="files to validate with")
    validation.add_argument(
        "--val-fraction",
        metavar="F",
        type=fraction,
        help="validate with this part of the training entries, chosen one by one by the seed",
    )
    parser.add_argument("--out", metavar="RUN", type=Path, help="run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change a key of the recipe, like optimizer.lr=3e-4; may be given several times",
    )
    parser.add_argument(
        "--seed", metavar="N", type=count, default=1, help="of weights, order and split (default: 1)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the run in RUN, if there is one; start it otherwise"
    )
    parser.add_argument(
        "--init-from",
        metavar="TAGGER",
        type=Path,
        help="start from the weights of a tagger (file, run folder or shipped name); the last layer is new "
        "if the classes differ",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 or auto (default)")
    parser.add_argument(
        "--workers", metavar="N", type=count, default=1, help="reading processes (default: 1)"
    )
    parser.add_argument("--threads", metavar="N", type=count, help="of the CPU (default: all cores)")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="keep jets as the network takes them here")
    parser.add_argument(
        "--on-bad-file",
        choices=["error", "skip"],
        default="error",
        help="files that cannot be read end the run, or are left out (default: error)",
    )
    parser.add_argument(
        "--max-bad-fraction",
        metavar="F",
        type=fraction,
        default=0.05,
        help="of the files that may be left out (default: 0.05)",
    )
    parser.add_argument(
        "--on-bad-jet",
        choices=["error", "drop"],
        default="error",
        help="jets with inputs that are not finite end the run, or are left out (default: error)",
    )


def run(options: argparse.Namespace) -> int:
    """Train, and show how it goes."""
    import torch

    from partt.cli.train_screen import TrainScreen
    from partt.data.config.data_config import load_data_config
    from partt.jobs.stop_signals import stop_on_signal
    from partt.training.distributed import connected, world_from_environment
    from partt.training.events import Notice
    from partt.training.fine_tuning import weights_to_start_from
    from partt.training.fit import Machine, fit
    from partt.training.recipe import load_recipe, recipe_name
    from partt.training.run_folder import RunFolder, locked_run_folder

    recipe = load_recipe(options.recipe, options.overrides)
    world = world_from_environment()
    device = choose_device(options.device, world.local_rank if world.size > 1 else None)
    torch.set_num_threads(options.threads or max(1, num_cores() // world.local_size))
    config = load_data_config(recipe.data_config)
    initial = weights_to_start_from(options.init_from, recipe, config) if options.init_from else None
    job = _open_job(options, recipe, config, initial.sha256 if initial else "", show=world.is_first)
    out = options.out or Path("runs") / recipe_name(options.recipe)
    machine = Machine(device, world, options.workers)
    weights = initial.tensors if initial else None
    with stop_on_signal() as should_stop, connected(world, device), ExitStack() as stack:
        folder, show = RunFolder(out), None
        if world.is_first:
            folder = stack.enter_context(locked_run_folder(out))
            screen = stack.enter_context(TrainScreen(job, folder))
            show = screen.show
            if initial is not None:
                head = "a new last layer" if initial.new_head else "the last layer too"
                show(Notice(f"starts from {options.init_from}, with {head}"))
        result = fit(
            job,
            folder,
            machine,
            resume=options.resume,
            initial_weights=weights,
            report=show or (lambda _: None),
            should_stop=should_stop,
        )
        if world.is_first:
            screen.end(result)
    return STOPPED if result.stopped else 0


def _open_job(
    options: argparse.Namespace, recipe: "Recipe", config: "DataConfig", initial_tagger: str, *, show: bool
) -> "TrainingJob":
    from partt.data.files.lists import expand_files
    from partt.training.job import ReadingOptions, open_job

    reading = ReadingOptions(options.on_bad_file, options.max_bad_fraction, options.on_bad_jet, options.cache)
    with progress_bar("opening", unit="files", show=show) as progress:
        return open_job(
            recipe,
            config,
            expand_files(options.train),
            options.val_fraction if options.val is None else expand_files(options.val),
            seed=options.seed,
            reading=reading,
            initial_tagger=initial_tagger,
            progress=progress,
        )
