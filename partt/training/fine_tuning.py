"""Fine-tuning: which weights of another tagger a run starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from partt.data.config.data_config import DataConfig, InputVariable
from partt.errors import ConfigError
from partt.model.network import Network
from partt.model.network_file import NetworkFile
from partt.model.registry import network_config
from partt.model.tasks import Task
from partt.tagger.loading import load_torch_tagger
from partt.tagger.tagger_file import TorchTagger
from partt.training.objectives.objective import Objective
from partt.training.objectives.tasks_of_recipe import make_objective
from partt.training.recipe import Recipe

MAX_LISTED = 5  # inputs in a notice


@dataclass(frozen=True, eq=False)
class InitialWeights:
    """Weights and buffers by name; the others of the network keep their random values."""

    tensors: dict[str, Tensor]
    recipe: Recipe  # of the run, with scales of targets and settings of the network from the tagger
    config: DataConfig  # of the run, with the tagger's standardisation
    notices: tuple[str, ...]  # in which inputs and settings tagger and run differ
    heads: str  # which ones are kept, for people
    sha256: str  # of the tagger


def weights_to_start_from(
    path: str | Path,
    recipe: Recipe,
    config: DataConfig,
    network_file: NetworkFile | None = None,
    objective: Objective | None = None,
) -> InitialWeights:
    """Return the weights of a tagger for a run; the last layer of a head only if its task is the same.

    Settings that act in training only, such as dropout, may differ. Shift and scale of a target, if the
    recipe leaves them to a fit, are those of the tagger. So are, unless the recipe says otherwise, the
    standardisation of the inputs and settings of the network that its weights have learned with.
    `network_file`: the one of the run, if its network comes from a file; `objective`: what is learned instead
    of the recipe's tasks.
    """
    tagger = load_torch_tagger(path, network_file)
    _check_fit(path, tagger, recipe, config)
    recipe = _with_scales_of(tagger.tasks, recipe)
    objective = objective or make_objective(recipe, config)
    tasks = {task.name: task for task in objective.tasks}
    same_classes = tagger.data_config.class_names == config.class_names
    kept = [
        task.name
        for task in tagger.tasks
        if task.name in objective.heads
        and _meaning(task) == _meaning(tasks.get(task.name, task))
        and (same_classes or not task.num_classes)
    ]
    tensors = dict(tagger.network.state_dict())
    for head, names in tagger.network.last_layers.items():
        tensors = {name: tensor for name, tensor in tensors.items() if head in kept or name not in names}
    dropped = [task.name for task in tagger.tasks if task.name not in objective.heads]
    heads = _heads_in_words(list(objective.heads), kept, dropped)
    config, of_inputs = _with_standardisation_of(tagger.data_config, config, recipe)
    recipe, of_network = _with_settings_of(tagger.network, recipe)
    return InitialWeights(tensors, recipe, config, (*of_inputs, *of_network), heads, tagger.sha256)


def _with_scales_of(known: Sequence[Task], recipe: Recipe) -> Recipe:
    """Return the recipe with shift and scale of the same regressions, where it leaves them to a fit."""
    regressions = dict(recipe.tasks.regressions)
    for task in known:
        regression = regressions.get(task.name)
        if regression is not None and (regression.target or task.name) == task.target:
            regressions[task.name] = regression.replace(
                shift=task.shift if regression.shift is None else regression.shift,
                scale=task.scale if regression.scale is None else regression.scale,
            )
    return recipe.replace(tasks=recipe.tasks.replace(regressions=regressions))


def _with_settings_of(network: Network, recipe: Recipe) -> tuple[Recipe, list[str]]:
    """Return the recipe with the settings that the tagger's weights were trained with, and notices."""
    if recipe.model.file is not None:  # whose settings only its code knows
        return recipe, []
    ours, theirs = recipe.model.network_config(), network.config
    values = {name: (getattr(ours, name), getattr(theirs, name)) for name in network.backbone.learned_with}
    values = {name: both for name, both in values.items() if both[0] != both[1]}
    if not values:
        return recipe, []
    words = ", ".join(f"{name} {mine}, in the tagger {its}" for name, (mine, its) in values.items())
    text = f"the network has other settings in the recipe: {words}; "
    if recipe.fine_tuning.standardisation == "config":
        return recipe, [f"{text}the recipe's are used (fine_tuning.standardisation: config)"]
    settings = {**recipe.model.settings, **{name: its for name, (_, its) in values.items()}}
    network_config(recipe.model.name, settings)  # or an error
    notice = f"{text}the tagger's are used (fine_tuning.standardisation: config keeps the recipe's)"
    return recipe.replace(model=recipe.model.replace(settings=settings)), [notice]


def _with_standardisation_of(
    theirs: DataConfig, config: DataConfig, recipe: Recipe
) -> tuple[DataConfig, list[str]]:
    """Return the config with the tagger's centre, scale and limits of its inputs, and what differs."""
    lengths = {name: collection.length for name, collection in theirs.collections.items()}
    notices = [
        f"{name}: length is {_length(collection.length)} in the data config, which counts, and "
        f"{_length(lengths[name])} in the tagger"
        for name, collection in config.collections.items()
        if lengths.get(name, collection.length) != collection.length
    ]
    known = theirs.resolved_variables
    other = [
        (ours, known[name])
        for name, ours in config.resolved_variables.items()
        if name in known and _effect(known[name]) != _effect(ours) and not known[name].to_fit
    ]
    if not other:
        return config, notices
    is_taken = recipe.fine_tuning.standardisation == "tagger"
    words = [
        f"{ours.name} {_numbers(ours)}, in the tagger {_numbers(of_tagger)}" for ours, of_tagger in other
    ]
    more = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    notices.append(
        "the data config standardises inputs in another way: "
        f"{'; '.join(words[:MAX_LISTED])}{more}; "
        + (
            "the tagger's numbers are used (fine_tuning.standardisation: config keeps the data config's)"
            if is_taken
            else "the data config's numbers are used (fine_tuning.standardisation: config)"
        )
    )
    taken = {of_tagger.name: of_tagger for _, of_tagger in other}
    return (config.with_parameters(taken) if is_taken else config), notices


def _length(length: int | None) -> str:
    return "null" if length is None else str(length)


def _effect(variable: InputVariable) -> InputVariable:
    """Return a variable without numbers that do not act."""
    raw = InputVariable(variable.name, pad_value=variable.pad_value, to_fit=variable.to_fit)
    return raw if variable.subtract_by is None else variable


def _numbers(variable: InputVariable) -> str:
    """Say how a variable is standardised."""
    if variable.to_fit:
        return "(fitted)"
    if variable.subtract_by is None:
        return "(as it is)"
    limits = f"[{variable.clip_min:g}, {variable.clip_max:g}]"
    return f"(x - {variable.subtract_by:g}) * {variable.multiply_by:g} in {limits}"


def _meaning(task: Task) -> Task:
    """Return what outputs mean to the network."""
    return task.replace(unit="", factor_of="")


def _heads_in_words(needed: Sequence[str], kept: Sequence[str], dropped: Sequence[str]) -> str:
    new = [name for name in needed if name not in kept]
    if not needed:
        return "without heads"
    if not new:
        text = "including the last layer"
    elif len(new) == len(needed):
        text = "with a new last layer"
    else:
        text = f"with a new last layer of {', '.join(new)}"
    return f"{text}, without its {' and '.join(dropped)}" if dropped else text


def _check_fit(path: str | Path, tagger: TorchTagger, recipe: Recipe, config: DataConfig) -> None:
    if tagger.network_name != recipe.model.name:
        raise ConfigError(
            f"--init-from {path}: the network of the tagger is {tagger.network_name}, that of the recipe is "
            f"{recipe.model.name}"
        )
    theirs, ours = _features(tagger.data_config), _features(config)
    if list(theirs) != list(ours):
        raise ConfigError(
            f"--init-from {path}: the inputs of the tagger are {', '.join(theirs)}; those of "
            f"{recipe.data_config} are {', '.join(ours)}"
        )
    for name, features in theirs.items():
        if features != ours[name]:
            raise ConfigError(
                f"--init-from {path}: the features of the tagger are {', '.join(features)} in {name}; those "
                f"of {recipe.data_config} are {', '.join(ours[name])}"
            )


def _features(config: DataConfig) -> dict[str, list[str]]:
    """Return the names of the features by input group."""
    groups = [collection.features for collection in config.collections.values()]
    return {
        group.name: [variable.name for variable in group.variables]
        for group in (*groups, *config.jet_groups.values())
    }
