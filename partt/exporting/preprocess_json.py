"""`preprocess.json`: how to compute the inputs of a standardised file, in weaver-core's format."""

import json
from collections.abc import Sequence
from typing import Any

from partt.data.config.data_config import DataConfig, InputVariable
from partt.model.task_columns import task_columns
from partt.model.tasks import Task
from partt.tagger.inference import classes_of

NAME = "preprocess.json"
NO_LIMIT = 1e32


def preprocess_text(config: DataConfig, tasks: Sequence[Task]) -> str:
    """Return the contents of preprocess.json."""
    return json.dumps(preprocess_json(config, tasks), indent=2) + "\n"


def preprocess_json(config: DataConfig, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the names of the outputs, classes first, and order, scales and limits of all inputs."""
    groups, class_names = config.inputs, classes_of(config, tasks)
    labels = (config.labels.flags or class_names) if class_names else ()
    columns = [task_columns(task, class_names) for task in tasks if task.is_regression]
    described: dict[str, Any] = {
        "output_names": [*labels, *(name for item in columns for name in item.predicted)],
        "input_names": list(groups),
    }
    resolved = config.resolved_variables
    for name, group in groups.items():
        described[name] = {
            "var_names": [variable.name for variable in group.vars],
            "var_infos": {
                variable.name: _info(resolved[variable.name], variable.pad_value) for variable in group.vars
            },
            "var_length": group.length,
        }
    return described


def _info(variable: InputVariable, pad_value: float) -> dict[str, float]:
    raw = variable.subtract_by is None
    return {
        "median": 0 if variable.subtract_by is None else variable.subtract_by,
        "norm_factor": variable.multiply_by,
        "replace_inf_value": 0,
        "lower_bound": -NO_LIMIT if raw else variable.clip_min,
        "upper_bound": NO_LIMIT if raw else variable.clip_max,
        "pad": pad_value,
    }
