"""Data configs as weaver network files see them."""

import yaml

from partt.data.config.data_config import DataConfig
from partt.data.config.sections import GroupSection, Parameters, Variable
from partt.model.weaver_network import PaddedGroup, WeaverInputs

TENSORS = {
    "vectors": "momenta"
}  # end of the name of an input group -> its name in a collection, if different


def weaver_inputs(config: DataConfig) -> WeaverInputs:
    """Return the attributes of weaver-core's DataConfig, and how it pads, for a data config."""
    groups = config.inputs.groups
    options = yaml.safe_load(config.with_parameters({}).to_yaml())
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
    return WeaverInputs(
        attributes, tuple(_padded_group(config, name, group) for name, group in groups.items())
    )


def _padded_group(config: DataConfig, name: str, group: GroupSection) -> PaddedGroup:
    collection, _, tensor = name.rpartition("_")
    params = config.preprocess.params

    def numbers(variable: Variable) -> Variable | Parameters:
        return variable if params is None else params[variable.name]

    pad_values = tuple(numbers(variable).pad_value for variable in group.vars)
    first = group if params is None else params[group.vars[0].name]
    return PaddedGroup(
        name, collection, TENSORS.get(tensor, tensor), group.length, pad_values, first.pad_mode == "wrap"
    )
