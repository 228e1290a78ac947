"""Names of what taggers predict, in prediction files, events and exported taggers; mostly of regressions.

Axes: B jets, C classes, K numbers that describe a target.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from partt.model.tasks import Task

if TYPE_CHECKING:  # evaluation, which reads these columns, does without torch
    from torch import Tensor

SCORE = "score_"  # + class
SOFTMAX = "softmax"  # all scores, in exported taggers with standardised inputs
CORRECTED = "_corrected"  # after the name of the variable
TRUE = "true_"  # + target


def column_name(name: str) -> str:
    """Replace what ROOT does not allow in names: anything but letters, digits and _ becomes _."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


@dataclass(frozen=True)
class TaskColumns:
    """The names of the columns of a regression."""

    value: str  # the prediction: value, mean, or the quantile nearest to the median
    low: str | None  # mean - width, or the lowest of several quantiles
    high: str | None  # mean + width, or the highest
    quantiles: Mapping[float, str]  # quantile -> the column that has it, in ascending order
    by_class: Mapping[str, str]  # class -> the prediction if the jet is of this class; if the task has these
    true: str  # the true value
    variable: str | None  # what the target is a factor of
    corrected: str | None  # prediction x variable

    @property
    def predicted(self) -> tuple[str, ...]:
        """What the network predicts, in the order of the columns."""
        ends = [name for name in (self.low, self.high) if name is not None]
        return tuple(dict.fromkeys([self.value, *ends, *self.quantiles.values(), *self.by_class.values()]))


def task_columns(task: Task, class_names: Sequence[str] = ()) -> TaskColumns:
    """Return the names of the columns of a regression; `class_names`: those of the tagger."""
    quantiles = sorted(task.quantiles)
    has_ends = task.kind == "gaussian" or len(quantiles) > 1
    low, high = (f"{task.name}_low", f"{task.name}_high") if has_ends else (None, None)
    names = {quantile: f"{task.name}_q{column_name(f'{100 * quantile:g}')}" for quantile in quantiles}
    if quantiles and low is not None and high is not None:
        names |= {quantiles[0]: low, quantiles[-1]: high}
    if quantiles:
        names[task.quantiles[task.central]] = task.name
    classes = class_names if task.per_class else ()
    return TaskColumns(
        value=task.name,
        low=low,
        high=high,
        quantiles=names,
        by_class={name: f"{task.name}_{column_name(name)}" for name in classes},
        true=f"{TRUE}{column_name(task.target)}",
        variable=task.factor_of or None,
        corrected=f"{column_name(task.factor_of)}{CORRECTED}" if task.factor_of else None,
    )


def predicted_columns(
    tasks: Sequence[Task], class_names: Sequence[str], outputs: "Mapping[str, Tensor]"
) -> "dict[str, Tensor]":
    """Return the predictions (B,) of all regressions by column, in units, from the outputs of all heads."""
    columns: dict[str, Tensor] = {}
    for task in tasks:
        if task.is_regression:
            columns |= _columns_of(task, class_names, outputs)
    return columns


def _columns_of(
    task: Task, class_names: Sequence[str], outputs: "Mapping[str, Tensor]"
) -> "dict[str, Tensor]":
    names = task_columns(task, class_names)
    values = task.predictions(outputs).unbind(1)  # K
    columns = {names.value: values[task.central]}
    if names.low is not None and names.high is not None:
        if task.kind == "gaussian":
            mean, width = values
            columns |= {names.low: mean - width, names.high: mean + width}
        else:
            ends = (min(task.quantiles), max(task.quantiles))
            low, high = (values[task.quantiles.index(quantile)] for quantile in ends)
            columns |= {names.low: low, names.high: high}
    for quantile, column in names.quantiles.items():
        columns[column] = values[task.quantiles.index(quantile)]
    of_class = task.split(outputs[task.name].float()).of_class
    if of_class is not None:
        central = task.in_units(of_class)[..., task.central]  # (B, C)
        columns |= dict(zip(names.by_class.values(), central.unbind(1), strict=True))
    return columns
