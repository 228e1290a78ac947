"""A job: recipe, jets and seed, opened and counted; all that decides what a run computes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from partt.data.columns import read_variables, select
from partt.data.jagged import Table
from partt.data.jet_source import JetIndex, JetSource
from partt.data.read_plan import jets_per_pass
from partt.errors import ConfigError, DataError
from partt.train.recipe import Recipe

NUM_REFERENCE_JETS = 8


@dataclass(frozen=True)
class TrainingJob:
    """What to learn, and from which jets."""

    recipe: Recipe
    train: JetSource
    train_index: JetIndex
    validation: JetSource
    validation_index: JetIndex
    seed: int
    initial_tagger: str = ""  # sha256 of the tagger whose weights it starts from

    def definition(self, num_processes: int) -> dict[str, Any]:
        """Return all that decides the result, as it goes into JSON."""
        recipe = self.recipe.model_dump(mode="json")
        del recipe["data_config"], recipe["checkpoint_minutes"], recipe["keep_checkpoints"]
        return {
            "format_version": 1,
            "recipe": recipe,
            "seed": self.seed,
            "processes": num_processes,
            "initial_tagger": self.initial_tagger,
            "data_config": yaml.safe_load(self.train.config.to_yaml()),
            "train": _files(self.train, self.train_index),
            "validation": _files(self.validation, self.validation_index),
        }


@dataclass(frozen=True)
class StepPlan:
    """How a run is cut into steps and epochs; the same in each process."""

    num_steps: int
    steps_per_epoch: int
    batch_size: int  # of one forward pass in one process
    accumulate: int  # forward passes per step

    @property
    def num_epochs(self) -> int:
        """Epochs, of which the last may be shorter."""
        return -(-self.num_steps // self.steps_per_epoch)

    def epoch_end(self, epoch: int) -> int:
        """Return the steps done when an epoch (the first is 0) ends."""
        return min((epoch + 1) * self.steps_per_epoch, self.num_steps)


def plan_steps(recipe: Recipe, index: JetIndex, world_size: int) -> StepPlan:
    """Cut a run into steps and epochs."""
    parts = world_size * recipe.accumulate
    if recipe.batch_size % parts:
        raise ConfigError(
            f"batch_size {recipe.batch_size} cannot be shared by {world_size} processes x accumulate "
            f"{recipe.accumulate}: make it a multiple of {parts}"
        )
    jets = recipe.jets_per_epoch or jets_per_pass(index.chunks)[0]
    steps_per_epoch = max(1, jets // recipe.batch_size)
    num_steps = recipe.steps or (recipe.epochs or 0) * steps_per_epoch
    return StepPlan(num_steps, steps_per_epoch, recipe.batch_size // parts, recipe.accumulate)


def reference_jets(source: JetSource, index: JetIndex) -> Table:
    """Return raw columns of a few selected jets, as a tagger file keeps them."""
    chunk = next((chunk for chunk in index.chunks if chunk.num_jets), None)
    if chunk is None:
        raise DataError("no jet passes the selection")
    config = source.config
    selection = config.selection_for("train")
    names = {variable.name for group in config.groups for variable in group.variables}
    names |= set(selection.names) if selection else set()
    variables = read_variables(config, names, source.files[chunk.file], chunk.start, chunk.stop)
    selected = select(config, variables, "train")
    return selected.take(np.arange(min(NUM_REFERENCE_JETS, selected.num_jets))).branches


def _files(source: JetSource, index: JetIndex) -> dict[str, Any]:
    jets = index.class_counts.sum(axis=1).tolist()
    return {
        "split": None if source.split is None else source.split.describe(),
        "files": {
            file.url: [group, file.identity, file.num_entries, num_jets]
            for file, group, num_jets in zip(source.files, source.groups, jets, strict=True)
        },
    }
