"""Recipe + data config -> objective: classes, targets, or both; classes of particles beside them."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from partt.config import did_you_mean
from partt.data.config.data_config import DataConfig
from partt.errors import ConfigError, DataError
from partt.jet_inputs import JetInputs
from partt.model.config_types import CLASSES
from partt.model.tasks import Kind, Task
from partt.scores.columns import check_regression_columns
from partt.training.objectives.classification import Classification
from partt.training.objectives.distillation import Distillation
from partt.training.objectives.jet_observables import num_observables
from partt.training.objectives.masked_flow import MaskedFlow
from partt.training.objectives.masked_particles import MaskedParticles
from partt.training.objectives.objective import Objective
from partt.training.objectives.particle_classification import ParticleClassification
from partt.training.objectives.particle_targets import fitted_scales, particle_targets
from partt.training.objectives.regression import Regression
from partt.training.objectives.sum_of_tasks import SumOfTasks, Term
from partt.training.recipe import ParticleTask, Recipe, RegressionTask

Targets = npt.NDArray[np.floating]  # (N, R); NaN: not known


def make_objective(recipe: Recipe, config: DataConfig) -> Objective:
    """Return what a recipe asks for; scales that are still to be fitted are 1."""
    if recipe.masked_particles is not None:
        targets = particle_targets(config, recipe.masked_particles.scales)
        kind = MaskedParticles if recipe.masked_particles.objective == "regression" else MaskedFlow
        observed = num_observables(config.input_shape.collections[config.main.name])
        return kind(targets, recipe.masked_particles, config.main.length, observed)
    weight, num_classes = recipe.tasks.classification.weight, len(config.class_names)
    terms = {}
    if weight and num_classes:
        terms[CLASSES] = Term(_classification(recipe, num_classes), weight)
    elif recipe.distillation is not None:
        raise ConfigError(
            "--teacher: there are no classes to learn; "
            + ("tasks.classification.weight is 0" if num_classes else "the data config has none")
        )
    for name, regression in recipe.tasks.regressions.items():
        terms[name] = Term(_regression(name, regression, config), regression.weight)
    if not terms:
        known = ", ".join(config.target_names)
        raise ConfigError(
            "tasks: there is nothing to learn: "
            + (
                f"the data config has no classes; add its targets ({known}) to tasks.regressions"
                if known
                else "the weight of the classes is 0, and there are no regressions; classes of particles are "
                "learned beside them"
                if num_classes
                else "the data config has no labels; only `masked_particles` learns without them"
            )
        )
    for name, particles in recipe.tasks.particles.items():
        terms[name] = Term(_particle_classification(name, particles, config), particles.weight)
    if list(terms) == [CLASSES] and weight == 1:
        return terms[CLASSES].objective
    objective = SumOfTasks(terms)
    class_names = config.class_names if CLASSES in terms else ()
    check_regression_columns(objective.tasks, class_names, config.observers)
    return objective


def _classification(recipe: Recipe, num_classes: int) -> Classification:
    choice, smoothing = recipe.distillation, recipe.label_smoothing
    if choice is None:
        return Classification(num_classes, smoothing)
    if smoothing and not choice.label_weight:
        raise ConfigError("label_smoothing: has no effect, because distillation.label_weight is 0")
    return Distillation(num_classes, choice.temperature, choice.label_weight, smoothing)


def with_feature_scales(recipe: Recipe, config: DataConfig, read_inputs: Callable[[], JetInputs]) -> Recipe:
    """Return the recipe with the scales of features that are masked, if it leaves them to a fit."""
    masked = recipe.masked_particles
    if masked is None or masked.scales is not None:
        return recipe
    scales = fitted_scales(particle_targets(config), read_inputs().main.features)
    return recipe.replace(masked_particles=masked.replace(scales=scales))


def with_fitted_scales(recipe: Recipe, config: DataConfig, read_targets: Callable[[], Targets]) -> Recipe:
    """Return the recipe with the shifts and scales that it leaves to a fit; targets are read if needed."""
    regressions = dict(recipe.tasks.regressions)
    if all(task.shift is not None and task.scale is not None for task in regressions.values()):
        return recipe
    targets = read_targets()
    for name, task in regressions.items():
        column = targets[:, config.target_names.index(task.target or name)].astype(np.float64)
        shift, scale = _fitted(name, column[np.isfinite(column)], len(column))
        regressions[name] = task.replace(
            shift=shift if task.shift is None else task.shift,
            scale=scale if task.scale is None else task.scale,
        )
    return recipe.replace(tasks=recipe.tasks.replace(regressions=regressions))


def _fitted(name: str, known: Targets, num_jets: int) -> tuple[float, float]:
    """Return median and half the central 68 % width, with a few digits."""
    if not len(known):
        raise DataError(f"tasks.regressions.{name}: none of {num_jets} training jets has a known target")
    low, middle, high = np.quantile(known, [0.16, 0.5, 0.84])
    width = (high - low) / 2 or np.std(known) or 1.0  # of a target that is hardly ever different
    return float(f"{middle:.6g}"), float(f"{width:.6g}")


def _regression(name: str, regression: RegressionTask, config: DataConfig) -> Regression:
    target = regression.target or name
    if target not in config.target_names:
        known = ", ".join(config.target_names) or "none"
        raise ConfigError(
            f"tasks.regressions.{name}: the data config has no target {target!r}"
            f"{did_you_mean(target, config.target_names)}; its targets: {known}"
        )
    if regression.per_class and len(config.class_names) < 2:
        raise ConfigError(f"tasks.regressions.{name}.per_class: the data config has no classes")
    kinds: dict[str, Kind] = {"gaussian": "gaussian", "quantile": "quantiles"}
    kind = kinds.get(regression.loss, "value")
    task = Task(
        name=name,
        kind=kind,
        num_classes=len(config.class_names) if regression.per_class else 0,
        target=target,
        quantiles=regression.quantiles if kind == "quantiles" else (),
        per_class=regression.per_class,
        shift=regression.shift or 0.0,
        scale=regression.scale or 1.0,
        unit=regression.unit,
        factor_of=regression.factor_of or "",
    )
    return Regression(task, regression.loss, config.target_names.index(target))


def _particle_classification(name: str, task: ParticleTask, config: DataConfig) -> ParticleClassification:
    labels = config.particle_labels_called(name)
    return ParticleClassification(name, labels.collection, len(labels.names), task.head)
