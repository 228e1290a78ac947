"""Small training jobs for tests: networks of a few thousand parameters, files of some hundred jets."""

from dataclasses import replace
from pathlib import Path

import torch

from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.jet_source import build_index, open_source
from partt.data.reading.splitting import Split
from partt.training.fit import FitResult, Machine, fit
from partt.training.job import TrainingJob
from partt.training.recipe import Recipe
from partt.training.run_folder import locked_run_folder

TINY_NETWORK = {
    "name": "part",
    "settings": {
        "width": 16,
        "num_heads": 2,
        "num_blocks": 1,
        "num_class_blocks": 1,
        "feed_forward_width": 32,
        "embedding_widths": [16],
        "pair_widths": [8],
    },
}
TINY_RECIPE = {
    "data_config": "jetclass_kin",
    "model": TINY_NETWORK,
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
    source = open_source([InputFile("", str(jets))], config, "train", reweighting=recipe.reweighting)
    train = replace(source, split=Split("train", 0.25, seed))
    validation = replace(source, split=Split("validation", 0.25, seed))
    return TrainingJob(recipe, train, build_index(train), validation, build_index(validation), seed)


def run_job(job: TrainingJob, out: Path, **options) -> FitResult:
    torch.set_num_threads(1)  # two are slower with networks of this size
    with locked_run_folder(out) as folder:
        return fit(job, folder, Machine(torch.device("cpu")), **options)


def stop_after(num_steps: int):
    """Return a should_stop that asks to stop when it is asked for the nth time."""
    calls = iter(range(1, 10**9))
    return lambda: next(calls) >= num_steps
