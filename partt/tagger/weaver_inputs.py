"""Data configs as weaver network files see them."""

import yaml

from partt.data.config.data_config import DataConfig
from partt.data.config.input_groups import VECTORS, split_name
from partt.model.weaver_network import PaddedGroup, WeaverInputs


def weaver_inputs(config: DataConfig) -> WeaverInputs:
    """Return the attributes of weaver-core's DataConfig, and how it pads, for a data config."""
    options = yaml.safe_load(config.with_parameters({}).to_yaml())
    groups = config.inputs
    attributes = {
        **options,
        "options": options,
        "input_names": tuple(groups),
        "input_dicts": {name: [variable.name for variable in group.vars] for name, group in groups.items()},
        "input_shapes": {name: (-1, len(group.vars), group.length) for name, group in groups.items()},
        "preprocess_params": options["preprocess"]["params"],
        "label_type": config.labels.type,
        "label_value": options["labels"]["value"],
        "label_names": ("_label_",) if config.labels.type == "simple" else config.label_variables,
        "observer_names": config.observers,
    }
    return WeaverInputs(attributes, tuple(_padded_group(config, name) for name in config.group_order))


def _padded_group(config: DataConfig, name: str) -> PaddedGroup:
    """Return how weaver-core pads an input group, and where partt has it."""
    group = config.inputs[name]
    pad_values = tuple(config.resolved_variables[variable.name].pad_value for variable in group.vars)
    collection, part = split_name(name)
    if name in config.jet_groups:
        return PaddedGroup(name, None, part, group.length, pad_values, group.pad_mode == "wrap")
    is_features = config.collections[collection].features.name == name
    tensor = "features" if is_features else "momenta" if part == VECTORS else part
    return PaddedGroup(name, collection, tensor, group.length, pad_values, group.pad_mode == "wrap")
