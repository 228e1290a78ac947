"""Fine-tuning: which weights of another tagger a run starts from."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from partt.data.config.data_config import DataConfig
from partt.errors import ConfigError
from partt.model.network_file import NetworkFile
from partt.tagger.loading import load_torch_tagger
from partt.tagger.tagger_file import TorchTagger
from partt.training.recipe import Recipe


@dataclass(frozen=True, eq=False)
class InitialWeights:
    """Weights and buffers by name; the others of the network keep their random values."""

    tensors: dict[str, Tensor]
    new_head: bool  # the last layer is random, because the classes differ
    sha256: str  # of the tagger


def weights_to_start_from(
    path: str | Path, recipe: Recipe, config: DataConfig, network_file: NetworkFile | None = None
) -> InitialWeights:
    """Return the weights of a tagger for a run; the last layer only if the classes are the same.

    Settings that do not change the shapes of weights, such as dropout, may differ. `network_file`: the one of
    the run, if its network comes from a file.
    """
    tagger = load_torch_tagger(path, network_file)
    _check_fit(path, tagger, recipe, config)
    tensors = dict(tagger.network.state_dict())
    new_head = tagger.class_names != config.class_names
    if new_head:
        for name in tagger.network.last_layer_names:
            del tensors[name]
    return InitialWeights(tensors, new_head, tagger.sha256)


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
