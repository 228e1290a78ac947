"""Small training jobs for tests: networks of a few thousand parameters, files of some hundred jets."""

from pathlib import Path

import torch

from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.training.fit import FitResult, Machine, fit
from partt.training.job import TrainingJob, open_job
from partt.training.recipe import Recipe
from partt.training.run_folder import locked_run_folder
from small_networks import SMALL_PART


def _plain(value):
    return list(value) if isinstance(value, tuple) else value  # as YAML has it


TINY_RECIPE = {
    "data_config": "jetclass_kin",
    "model": {"name": "part", "settings": {key: _plain(value) for key, value in SMALL_PART.items()}},
    "optimizer": {"name": "ranger", "lr": 1e-2},
    "schedule": {"name": "flat_decay"},
    "batch_size": 16,
    "epochs": 3,
    "jets_per_epoch": 96,
}


def tiny_recipe(**changes) -> Recipe:
    return Recipe.model_validate({**TINY_RECIPE, **changes})


def tiny_job(jets: Path, seed: int = 7, **changes) -> TrainingJob:
    recipe = tiny_recipe(**changes)
    config = load_data_config(recipe.data_config)
    return open_job(recipe, config, [InputFile("", str(jets))], 0.25, seed=seed)


def run_job(job: TrainingJob, out: Path, **options) -> FitResult:
    with locked_run_folder(out) as folder:
        return fit(job, folder, Machine(torch.device("cpu")), **options)


def stop_after(num_steps: int):
    """Return a should_stop that asks to stop when it is asked for the nth time."""
    calls = iter(range(1, 10**9))
    return lambda: next(calls) >= num_steps
