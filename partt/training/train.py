"""`partt train` as a function: recipe + files -> a run folder with a trained tagger."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import torch

from partt.data.config.data_config import load_data_config, with_input
from partt.data.config.input_map import InputMap
from partt.data.files.lists import InputFile, expand_files
from partt.errors import ConfigError
from partt.jobs.devices import choose_device, num_cores
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.progress import Progress
from partt.model.cpu.allocator import keep_few_kernels
from partt.model.network_file import read_network_file, run_network_file
from partt.tagger.loading import load_tagger
from partt.tagger.tagger import Tagger
from partt.training.class_naming import naming_notices, with_class_names
from partt.training.distributed import connected, world_from_environment
from partt.training.events import Event, Notice, Report, StepDone
from partt.training.fine_tuning import weights_to_start_from
from partt.training.fit import FitResult, Machine, fit
from partt.training.job import ReadingOptions, open_job
from partt.training.objectives.objective import Objective
from partt.training.recipe import FineTuning, Recipe, load_recipe, with_network_file
from partt.training.run_folder import RunFolder, locked_run_folder
from partt.training.teacher import teaching

Files = str | Path | Sequence[str | Path]


def train(
    recipe: str | Path | Recipe,
    files: Files,
    *,
    validation: Files | float,
    out: str | Path | None = None,
    overrides: Sequence[str] = (),
    input: InputMap | str | None = None,  # noqa: A002
    tree: str | None = None,
    seed: int = 1,
    resume: bool = False,
    init_from: str | Path | None = None,
    teacher: Files | Tagger | None = None,
    objective: Objective | None = None,
    network_file: str | Path | None = None,
    device: str = "auto",
    num_workers: int = 1,
    num_threads: int | None = None,
    cache: str | Path | None = None,
    on_bad_file: Literal["error", "skip"] = "error",
    max_bad_fraction: float = 0.05,
    on_bad_jet: Literal["error", "drop"] = "error",
    opening: Progress | None = None,
    report: Report | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Train with a recipe (a path, or the name of a shipped one), and write the run folder `out`.

    `files` and `validation` are paths, globs, NAME:GLOB, @LIST or URLs; `validation` can also be a number,
    the fraction of the training entries to set aside. `overrides` change keys of the recipe
    ("optimizer.lr=3e-4"). `input`: an input map, its name or path, for files of events; "none": the files
    have one jet per entry. `tree`: that of files not given as FILE.root:TREE. `teacher`: a tagger, or where
    to find it, whose scores are learned; several are an ensemble. `objective`: what to learn, instead of
    classification. `network_file`: the user's own network, whose code is run (docs/how-to/own_network.md).
    `opening` is called with the files opened so far and their number. With torchrun all processes call this
    function; only the first one reports.
    See docs/reference/training.md for the other arguments.
    """
    keep_few_kernels()
    path = Path(out) if out is not None else default_folder(recipe)
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(str(recipe), overrides, network_file)
    elif network_file is not None:
        recipe = with_network_file(recipe, network_file)
    file = None if recipe.model.file is None else read_network_file(recipe.model.file)
    world = world_from_environment()
    where = choose_device(device, world.local_rank if world.size > 1 else None)
    torch.set_num_threads(num_threads or max(1, num_cores() // world.local_size))
    config = with_input(load_data_config(recipe.data_config), input)
    reading = ReadingOptions(on_bad_file, max_bad_fraction, on_bad_jet, Path(cache) if cache else None)
    train_files = _expanded(files, tree)
    if teacher is not None and not isinstance(teacher, Tagger):
        teacher = load_tagger(teacher)
    if teacher is not None and num_workers == 0 and teacher.library == "torch":
        teacher.move_to(str(where))  # reading processes have no GPU
    if objective is None:
        config = with_class_names(recipe, config, train_files, reading, teacher)
    elif teacher is not None:
        raise ConfigError(
            "an objective of your own cannot have a teacher: the objective itself says what is learned"
        )
    if init_from is None and file is None:  # whose code may load weights
        _check_nothing_frozen(recipe.fine_tuning)
    initial = None if init_from is None else weights_to_start_from(init_from, recipe, config, file, objective)
    job = open_job(
        recipe if initial is None else initial.recipe,
        config if initial is None else initial.config,
        train_files,
        validation if isinstance(validation, float) else _expanded(validation, tree),
        seed=seed,
        reading=reading,
        objective=objective,
        initial_tagger="" if initial is None else initial.sha256,
        network_code=None if file is None else run_network_file(file),
        teacher=teacher,
        progress=opening,
    )
    report = (report or _steps_in_notebook()) if world.is_first else lambda _: None
    with connected(world, where), ExitStack() as stack:
        folder = stack.enter_context(locked_run_folder(path)) if world.is_first else RunFolder(path)
        if initial is not None:
            for text in [f"starts from the weights of {init_from}, {initial.heads}", *initial.notices]:
                report(Notice(text))
        if teacher is not None:
            report(Notice(teaching(teacher)))
        for text in [*naming_notices(recipe, config), *job.notices]:
            report(Notice(text))
        return fit(
            job,
            folder,
            Machine(where, world, num_workers),
            resume=resume,
            initial_weights=None if initial is None else initial.tensors,
            report=report,
            should_stop=should_stop,
        )


def default_folder(recipe: str | Path | Recipe) -> Path:
    """Return the run folder of a recipe, if there is no `out`."""
    return Path("runs") / (recipe.model.name if isinstance(recipe, Recipe) else Path(recipe).stem)


def _check_nothing_frozen(choice: FineTuning) -> None:
    """Raise an error if random weights would stay as they are."""
    for key, what in (("freeze", "these parameters have"), ("freeze_steps", "the backbone has")):
        if getattr(choice, key):
            raise ConfigError(
                f"fine_tuning.{key}: {what} random weights; start from a tagger with --init-from or remove "
                "this key"
            )


def _expanded(files: Files, tree: str | None) -> Sequence[InputFile]:
    return expand_files([str(file) for file in ([files] if isinstance(files, str | Path) else files)], tree)


def _steps_in_notebook() -> Report:
    """Return a report that shows the steps in a notebook, and nothing elsewhere."""
    show = notebook_progress("training", "steps")

    def report(event: Event) -> None:
        if isinstance(event, StepDone):
            show(event.step, event.num_steps)

    return report
