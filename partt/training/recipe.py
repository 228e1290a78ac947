"""Recipes: how to train, as typed YAML."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import nn

from partt.config import MAX_BYTES, KeyFault, Record, parse_record, parse_yaml, shipped_file
from partt.data.config.sections import Names, Regex
from partt.errors import ConfigError
from partt.model.config_types import CLASSES, NumLayers, Width
from partt.model.heads import HeadConfig
from partt.model.registry import network_config, network_names, unknown_network
from partt.model.tasks import PerClass, Quantiles
from partt.regular_files import read_bounded

Count = Annotated[int, Field(ge=1, le=10**12)]
NumSteps = Annotated[int, Field(ge=0, le=10**12)]
NumJets = Annotated[int, Field(ge=1, le=2**20)]  # that are in memory together
Fraction = Annotated[float, Field(ge=0, le=1)]
Factor = Annotated[float, Field(gt=0, le=1e9)]  # products of some fit into float32
Beta = Annotated[float, Field(ge=0, lt=1)]
Patterns = Annotated[tuple[str, ...], Field(strict=False)]  # YAML has lists, not tuples


class ModelChoice(Record):
    """A network by its name or from a file, and settings that differ from its defaults."""

    name: str
    """of a network; with `file`, what to call it (default: the name of the file)"""
    file: str | None = None
    """the user's own network (docs/how-to/own_network.md), a path relative to the recipe; its code is run"""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    """keys of the network's config, listed below; with a weaver network file, its network options"""

    @model_validator(mode="before")
    @classmethod
    def _name_of_file(cls, value: Any) -> Any:
        if isinstance(value, dict) and "name" not in value and isinstance(value.get("file"), str):
            return {"name": Path(value["file"]).stem, **value}
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file is not None:
            return self  # its code knows the settings
        if self.name not in network_names():
            raise KeyFault(("name",), str(unknown_network(self.name)))
        self.network_config()
        return self

    def network_config(self) -> Record:
        """Return the config of the network."""
        try:
            return network_config(self.name, self.settings)
        except ConfigError as error:
            raise KeyFault(("settings",), str(error)) from error


class OptimizerChoice(Record):
    """The optimizer; null: the default of the optimizer."""

    name: Literal["ranger", "adamw", "adam", "sgd"] = "ranger"
    lr: Factor
    """the learning rate; the schedule multiplies it"""
    lr_factors: Mapping[Regex, Factor] = Field(default_factory=dict, max_length=100)
    """factors of the learning rate, by regular expressions that names of parameters start with, such as
    `heads\\.: 10`; `backbone.` may be left out; the first that matches counts"""
    weight_decay: NonNegativeFloat = 0.0
    """not applied to one-dimensional parameters and the class token; adam and sgd add it to the gradient,
    ranger and adamw subtract it from the weights"""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False)] | None = None
    """not for sgd"""
    eps: PositiveFloat | None = None
    """not for sgd"""
    momentum: Beta = 0.0
    """sgd only"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == "sgd":
            for key in ("betas", "eps"):
                if getattr(self, key) is not None:
                    raise KeyFault((key,), "not for sgd, which has momentum only")
        elif self.momentum:
            raise KeyFault(("momentum",), f"only for sgd; that of {self.name} is the first of betas")
        return self


class ScheduleChoice(Record):
    """Learning rate against the step; partt.training.schedules has the formulas."""

    name: Literal["constant", "flat_decay", "flat_cosine", "flat_linear", "steps", "cosine", "one_cycle"] = (
        "constant"
    )
    warmup_steps: NumSteps = 0
    """steps in which the rate rises linearly from zero; not for one_cycle, which starts with a rise"""
    flat_fraction: Fraction = 0.7
    """flat_decay: fraction of the epochs before the decay; flat_cosine and flat_linear: of the steps"""
    rise_fraction: Fraction = 0.3
    """one_cycle: fraction of the steps in which the rate rises"""
    start_factor: Fraction = 0.04
    """one_cycle: factor at the first step"""
    final_factor: Fraction = 0.01
    """flat_decay, cosine and one_cycle: factor at the end; flat_cosine and flat_linear: the smallest"""
    step_factor: Fraction = 0.1
    """steps: factor after a third of the epochs, and once more after two thirds"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == "one_cycle" and self.warmup_steps:
            raise KeyFault(("warmup_steps",), "not for one_cycle, which rises for rise_fraction of the steps")
        if self.name == "flat_decay" and self.final_factor == 0:
            raise KeyFault(("final_factor",), "an exponential decay never reaches 0")
        return self


class FineTuning(Record):
    """Learning rates, frozen parameters and standardisation of runs that start from another tagger."""

    head_lr_factor: Factor = 1.0
    """learning rate of the last layer, relative to the other layers"""
    freeze: Patterns = ()
    """parameters that stay fixed: shell patterns of names, such as particle_embedding.*"""
    freeze_steps: NumSteps = 0
    """steps in which only the heads are trained: the backbone stays fixed, its BatchNorm statistics too"""
    catch_up_steps: NumSteps = 0
    """steps after these in which the learning rate of the backbone rises linearly to its own"""
    standardisation: Literal["tagger", "config"] = "tagger"
    """centre, scale and limits of the inputs, and settings of the network that change what its weights mean,
    but not their shapes, such as frame and momentum_unit: those of the tagger to start from (tagger), or of
    data config and recipe (config)"""


class EmaChoice(Record):
    """An exponential moving average of the weights, which validation and the tagger use instead of them."""

    decay: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """average = decay x average + (1 - decay) x weights after each step; less in the first steps, where it is
    (1 + step) / (10 + step)"""


class DistillationChoice(Record):
    """The loss with a teacher: (1 - label_weight) T² KL(teacher || student) + label_weight cross entropy."""

    temperature: Annotated[float, Field(ge=1e-3, le=1e6)] = 4.0
    """T, by which the logits of both are divided; the larger, the more the classes with small scores count"""
    label_weight: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """0: the scores of the teacher are all that is learned, and files need no labels"""


class DecoderChoice(Record):
    """The decoder of masked particles: a transformer that is thrown away after training."""

    width: Width = 64
    num_blocks: NumLayers = 2
    num_heads: Width = 4

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.width % self.num_heads:
            raise ValueError(f"width {self.width} must be a multiple of num_heads {self.num_heads}")
        return self


class MaskedParticlesChoice(Record):
    """Learning without labels: particles are hidden, and learned from those that are left."""

    objective: Literal["regression", "flow_matching"] = "regression"
    """regression: features and type of each hidden particle, asked for by its rank in pT; flow_matching: the
    way from noise to the hidden particles"""
    mask_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """of the particles of a jet that are hidden, rounded down to whole particles"""
    type_weight: NonNegativeFloat = 0.3
    """of the loss of the particle types, which features such as part_charge and part_isMuon tell, relative to
    that of the other features"""
    observables_weight: NonNegativeFloat = 10.0
    """of the loss of the observables of the whole jet (mass, energy correlations, ...), read from its
    embedding; 0: they are not learned"""
    scales: Mapping[str, PositiveFloat] | None = None
    """feature -> number that it is divided by; null: standard deviations of some training jets"""
    decoder: DecoderChoice = DecoderChoice()


class ClassificationTask(Record):
    """The classes of the data config, if it has any."""

    weight: NonNegativeFloat = 1.0
    """of the cross entropy in the loss; 0: classes are not learned"""


class RegressionTask(Record):
    """A target of the data config; jets whose target is not known do not count."""

    target: str | None = None
    """name of the target in the data config; null: the name of the task"""
    loss: Literal["log_cosh", "mse", "mae", "gaussian", "quantile"] = "log_cosh"
    """of the scaled target; gaussian also learns the width, quantile learns `quantiles`;
    partt.training.objectives.regression_losses has the formulas"""
    quantiles: Quantiles = (0.16, 0.5, 0.84)
    """for loss: quantile"""
    weight: PositiveFloat = 1.0
    """of this loss in the sum"""
    per_class: PerClass = False
    """true: one prediction for each class; residual: one for all, and residuals to it for each class"""
    shift: float | None = None
    """the network learns (target - shift) / scale; null: the median of some training jets"""
    scale: PositiveFloat | None = None
    """null: half the central 68 % width of some training jets"""
    unit: str = ""
    """of the target, for people"""
    factor_of: str | None = None
    """variable of the data config, with one value per jet, that the target is a factor on, such as jet_mass
    for a target true_mass / jet_mass: predictions then have jet_mass_corrected = prediction x jet_mass"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.quantiles)) < len(self.quantiles):
            raise KeyFault(("quantiles",), "each quantile can be learned only once")
        return self


class ParticleTask(Record):
    """Classes of particles in the data config, as an auxiliary task: only training has its head."""

    weight: PositiveFloat = 1.0
    """of the cross entropy, the mean over particles whose class is known, in the sum"""
    head: HeadConfig = HeadConfig()
    """`hidden_widths`, `dropout` and `bias` of hidden layers between the tokens and the classes"""


TaskName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


class Tasks(Record):
    """What is learned: classes, and any number of targets; the loss is the weighted sum."""

    classification: ClassificationTask = ClassificationTask()
    regressions: Mapping[TaskName, RegressionTask] = Field(default_factory=dict, max_length=100)
    """name -> keys of a regression"""
    particles: Mapping[TaskName, ParticleTask] = Field(default_factory=dict, max_length=100)
    """name in `labels.particles` of the data config -> keys of the task"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if CLASSES in self.regressions:
            raise KeyFault(("regressions", CLASSES), "this name is taken by the classes: choose another")
        for name in self.particles:
            if name == CLASSES or name in self.regressions:
                owner = "the classes" if name == CLASSES else "a regression"
                raise KeyFault(("particles", name), f"this name is taken by {owner}: choose another")
        for kind, names in (("regressions", self.regressions), ("particles", self.particles)):
            for name in names:
                if hasattr(nn.ModuleDict(), name):
                    raise KeyFault((kind, name), "torch cannot give a head this name: choose another")
        for name, task in self.regressions.items():
            if task.per_class and not self.classification.weight:
                raise KeyFault(
                    ("regressions", name, "per_class"),
                    "needs classification.weight > 0: the class with the highest score is predicted",
                )
        return self


class Recipe(Record):
    """How to train; files, seed and device are options of the command line."""

    data_config: str
    """name of a shipped data config, or a path relative to the recipe"""
    class_names: Annotated[Names, Field(min_length=1)] | None = None
    """names of the classes, for a data config with a class number and no `labels.names`; null: class_0,
    class_1, ... as many as the training files have"""
    model: ModelChoice
    optimizer: OptimizerChoice
    schedule: ScheduleChoice = ScheduleChoice()
    tasks: Tasks = Tasks()
    distillation: DistillationChoice | None = None
    """how the classes are learned from a teacher; null: with --teacher the defaults, otherwise from labels"""
    masked_particles: MaskedParticlesChoice | None = None
    """learn without labels, instead of `tasks`; {}: with the defaults"""
    batch_size: NumJets = 512
    """jets per step of the optimizer, over all processes"""
    accumulate: NumJets = 1
    """forward passes per step, each with a part of the batch, to save memory"""
    epochs: Count | None = None
    """number of epochs of jets_per_epoch jets each"""
    steps: Count | None = None
    """number of steps of the optimizer, instead of epochs"""
    jets_per_epoch: Count | None = None
    """null: one pass over the files"""
    validation_jets_per_epoch: Count | None = None
    """the same jets after every epoch, spread over classes and files; null: all"""
    reweighting: Literal["sample", "loss"] = "sample"
    """how fitted weights of the data config are used: sample draws jets by weight, loss weights the loss"""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clip_norm: PositiveFloat | None = None
    """maximum norm of the gradient"""
    ema: EmaChoice | None = None
    """null: no average of the weights; {}: one with the defaults"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: mixed precision, on a GPU"""
    metric: str | None = None
    """metric of the validation jets that chooses the best epoch: accuracy (default), auc or loss; with
    regressions loss (default), accuracy, auc, and NAME_loss, NAME_bias or NAME_width of a regression; also
    NAME_loss and NAME_accuracy of classes of particles; with a teacher loss (default), agreement with its
    class of the highest score, accuracy and auc; with masked_particles loss (default), feature_loss,
    type_accuracy, and probe_accuracy if the validation jets have labels"""
    patience: Count | None = None
    """stop after this many epochs without improvement"""
    checkpoint_minutes: NonNegativeFloat = 10.0
    """time between checkpoints within an epoch; 0: after every step"""
    keep_checkpoints: Count = 2
    """number of newest checkpoints to keep, in addition to the one of the best epoch"""
    fine_tuning: FineTuning = FineTuning()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise KeyFault(("epochs",), "give either epochs or steps")
        if self.masked_particles is not None:
            for key, default in (("tasks", Tasks()), ("distillation", None), ("label_smoothing", 0.0)):
                if getattr(self, key) != default:
                    raise KeyFault((key,), "not with masked_particles, which needs no labels: remove one")
        return self

    def to_yaml(self) -> str:
        """Return the recipe with all its keys, as YAML that loads back equal."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, width=110)


def load_recipe(
    name_or_path: str, overrides: Sequence[str] = (), network_file: str | Path | None = None
) -> Recipe:
    """Load a shipped recipe by name, or any recipe by path; overrides are "key=value".

    `network_file` takes the place of `model.file`, or of the whole model if that is not from a file.
    """
    path = shipped_file("training", name_or_path)
    text = read_bounded(path, MAX_BYTES, error_type=ConfigError)
    if network_file is not None:
        overrides = [_network_override(text, str(path), network_file), *overrides]
    recipe = parse_record(text, Recipe, str(path), overrides)
    beside = path.parent / recipe.data_config
    if os.path.isfile(beside):  # noqa: PTH113 - Path.is_file raises where a name is too long
        recipe = recipe.replace(data_config=str(beside))
    beside = path.parent / (recipe.model.file or "")
    return with_network_file(recipe, beside) if os.path.isfile(beside) else recipe  # noqa: PTH113 - as above


def with_network_file(recipe: Recipe, file: str | Path) -> Recipe:
    """Return the recipe with another network file; settings are kept only if it had one before."""
    model = recipe.model
    if model.file is None:
        return recipe.replace(model=ModelChoice.model_validate({"file": str(file)}))
    return recipe.replace(model=model.replace(file=str(file)))


def _network_override(recipe: bytes, source: str, network_file: str | Path) -> str:
    data, _ = parse_yaml(recipe, source)
    model = data.get("model") if isinstance(data, dict) else None
    file = json.dumps(str(Path(network_file).absolute()))
    return f"model.file={file}" if isinstance(model, dict) and "file" in model else f"model={{file: {file}}}"
