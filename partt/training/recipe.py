"""Recipes: how to train, as YAML; strict and typed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from partt.config import KeyFault, Record, load_record, shipped_file
from partt.errors import ConfigError
from partt.model.registry import network_config, network_names

Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Patterns = Annotated[tuple[str, ...], Field(strict=False)]  # YAML has lists, not tuples


class ModelChoice(Record):
    """A network of partt.model.registry and the keys of its config that are to be changed."""

    name: str
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """keys of the network's own config"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name not in network_names():
            raise KeyFault(("name",), f"no network {self.name!r}; known: {', '.join(network_names())}")
        self.network_config()
        return self

    def network_config(self) -> Record:
        """Return the config of the network."""
        try:
            return network_config(self.name, self.settings)
        except ConfigError as error:
            raise KeyFault(("settings",), str(error)) from error


class OptimizerChoice(Record):
    """The optimizer; null: its own default."""

    name: Literal["ranger", "adamw"] = "ranger"
    lr: PositiveFloat
    """the learning rate that the schedule's factors multiply"""
    weight_decay: NonNegativeFloat = 0.0
    """never of one-dimensional parameters, nor of the class token"""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] | None = None
    eps: PositiveFloat | None = None


class ScheduleChoice(Record):
    """How the learning rate changes with the step; partt.training.schedules has the formulas."""

    name: Literal["constant", "flat_decay", "cosine", "one_cycle"] = "constant"
    warmup_steps: NonNegativeInt = 0
    """steps in which the rate rises linearly from zero (not for one_cycle, which has its own rise)"""
    flat_fraction: Fraction = 0.7
    """flat_decay: the part of the epochs before the decay"""
    rise_fraction: Fraction = 0.3
    """one_cycle: the part of the steps in which the rate rises"""
    start_factor: Fraction = 0.04
    """one_cycle: where the rise starts"""
    final_factor: Fraction = 0.01
    """where flat_decay, cosine and one_cycle end"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == "one_cycle" and self.warmup_steps:
            raise KeyFault(("warmup_steps",), "one_cycle rises by itself, for rise_fraction of the steps")
        if self.name == "flat_decay" and self.final_factor == 0:
            raise KeyFault(("final_factor",), "an exponential decay never reaches 0")
        return self


class FineTuning(Record):
    """What is special about parameters when a run starts from another tagger's weights."""

    head_lr_factor: PositiveFloat = 1.0
    """learning rate of the last layer, relative to that of the others"""
    freeze: Patterns = ()
    """parameters that stay as they are, by name: shell patterns like particle_embedding.*"""


class Recipe(Record):
    """How to train; what is not here (files, seed, device) is said on the command line."""

    data_config: str
    """a shipped name, or a path relative to the recipe"""
    model: ModelChoice
    optimizer: OptimizerChoice
    schedule: ScheduleChoice = ScheduleChoice()
    batch_size: PositiveInt = 512
    """jets per step of the optimizer, over all processes"""
    accumulate: PositiveInt = 1
    """parts that a process's share of a batch is computed in, to save memory"""
    epochs: PositiveInt | None = None
    """of jets_per_epoch jets each"""
    steps: PositiveInt | None = None
    """instead of epochs: steps of the optimizer"""
    jets_per_epoch: PositiveInt | None = None
    """null: one pass over the files"""
    reweighting: Literal["sample", "loss"] = "sample"
    """how the weights that the data config asks to fit act: by choosing jets, or in the loss"""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clip_norm: PositiveFloat | None = None
    """largest norm of the gradient"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: matrix products on a GPU"""
    metric: str | None = None
    """of the validation jets; decides which epoch is the best: accuracy (default), auc or loss"""
    patience: PositiveInt | None = None
    """stop after so many epochs without a better one"""
    checkpoint_minutes: NonNegativeFloat = 10.0
    """time between checkpoints inside an epoch; 0: after every step"""
    keep_checkpoints: PositiveInt = 2
    """newest ones that stay, beside that of the best epoch"""
    fine_tuning: FineTuning = FineTuning()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise KeyFault(("epochs",), "give either epochs or steps")
        return self

    def to_yaml(self) -> str:
        """Return the recipe with all its keys, as YAML that loads back equal."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=110)


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe by the name of one that partt ships, or by its path; overrides are "key=value"."""
    path = shipped_file("training", name_or_path)
    recipe = load_record(path, Recipe, overrides)
    beside = path.parent / recipe.data_config
    return recipe.replace(data_config=str(beside)) if beside.is_file() else recipe


def recipe_name(name_or_path: str) -> str:
    """Return what to call a run by default."""
    return Path(name_or_path).stem
