"""Tasks: what the outputs of each head of a network mean, and how they become predictions in units.

The outputs of a regression are of order 1. A task knows the shift and the scale of its target, so that
predictions come in the target's unit.

Axes: B jets, C classes, K numbers that describe a target.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from partt.config import Record
from partt.model.config_types import CLASSES, Width

if TYPE_CHECKING:  # evaluation, which reads tasks, does without torch
    from collections.abc import Mapping, Sequence

    from torch import Tensor

Kind = Literal["classes", "value", "gaussian", "quantiles"]
PerClass = bool | Literal["residual"]
Quantile = Annotated[float, Field(gt=0, lt=1)]
Quantiles = Annotated[tuple[Quantile, ...], Field(strict=False, max_length=100)]
MEDIAN = 0.5


@dataclass(frozen=True, eq=False)
class TaskOutputs:
    """Outputs of a regression, of order 1; with `per_class: true` there is nothing for all classes."""

    of_all: "Tensor | None"  # (B, K) whatever the class
    of_class: "Tensor | None"  # (B, C, K) if the jet is of this class

    def of(self, classes: "Tensor | None") -> "Tensor":
        """Return the outputs (B, K) for the given classes (B,), or those for all if it has no others."""
        if self.of_class is None or classes is None:
            assert self.of_all is not None  # noqa: S101 (for mypy)
            return self.of_all
        index = classes[:, None, None].expand(-1, 1, self.of_class.shape[2])
        return self.of_class.gather(1, index)[:, 0]


class Task(Record):
    """The outputs of one head, as listed in tagger files."""

    name: str
    """of the head, and of its predictions"""
    kind: Kind
    """classes: logits; value: one number; gaussian: mean and ln variance; quantiles: one number each"""
    num_classes: Annotated[int, Field(ge=0)] = 0
    """of `classes`, and of regressions per class"""
    target: str = ""
    """of a regression: name of the target in the data config"""
    quantiles: Quantiles = ()
    per_class: PerClass = False
    """true: K outputs for each class; residual: K for all, then K residuals to these for each class"""
    shift: float = 0.0
    scale: PositiveFloat = 1.0
    unit: str = ""
    """of the target"""
    factor_of: str = ""
    """variable of the data config, with one value per jet, that the target is a factor on; empty: none"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.kind == "quantiles") != bool(self.quantiles):
            raise ValueError(f"{self.name}: quantiles go with kind: quantiles, and with no other")
        if self.per_class and self.num_classes < 2:
            raise ValueError(f"{self.name}: per_class needs two classes or more")
        return self

    @property
    def is_regression(self) -> bool:
        """Whether it predicts a target."""
        return self.kind in {"value", "gaussian", "quantiles"}

    @property
    def num_values(self) -> int:
        """K, the numbers that describe the target."""
        return {"classes": self.num_classes, "value": 1, "gaussian": 2, "quantiles": len(self.quantiles)}[
            self.kind
        ]

    @property
    def num_outputs(self) -> Width:
        """The number of outputs of the head."""
        copies = {False: 1, True: self.num_classes, "residual": 1 + self.num_classes}[self.per_class]
        return self.num_values * copies

    def split(self, outputs: "Tensor") -> TaskOutputs:
        """Return the outputs (B, ...) of the head of a regression, for all classes and class by class."""
        if not self.per_class:
            return TaskOutputs(outputs, None)
        of_class = outputs.view(-1, self.num_outputs // self.num_values, self.num_values)
        if self.per_class is True:
            return TaskOutputs(None, of_class)
        of_all = of_class[:, 0]
        return TaskOutputs(of_all, of_all[:, None] + of_class[:, 1:])

    def scaled(self, targets: "Tensor") -> "Tensor":
        """Return targets as the head learns them."""
        return (targets - self.shift) / self.scale

    def in_units(self, values: "Tensor") -> "Tensor":
        """Return predictions (..., K) from outputs (..., K): value, mean and width, or quantiles."""
        if self.kind != "gaussian":
            return self.shift + self.scale * values
        import torch  # noqa: PLC0415

        mean, log_variance = values.unbind(-1)
        width = (log_variance / 2).exp() * self.scale
        return torch.stack((self.shift + self.scale * mean, width), dim=-1)

    @property
    def central(self) -> int:
        """Which of the K numbers is the prediction: the mean, or the quantile nearest to the median."""
        distances = [abs(quantile - MEDIAN) for quantile in self.quantiles]
        return distances.index(min(distances)) if distances else 0

    def predictions(self, outputs: "Mapping[str, Tensor]") -> "Tensor":
        """Return the predictions (B, K) of a regression, from the outputs of all heads.

        With `per_class: true` they are those of the class with the highest score, otherwise those for all.
        """
        parts = self.split(outputs[self.name].float())
        is_by_class = parts.of_all is None
        return self.in_units(parts.of(outputs[CLASSES].argmax(dim=1) if is_by_class else None))


def classes_task(num_classes: int) -> Task:
    """Return the task of the classes of a data config."""
    return Task(name=CLASSES, kind="classes", num_classes=num_classes)


def fault_of(tasks: "Sequence[Task]", num_classes: int) -> str | None:
    """Say why the tasks in a file do not suit a tagger with these classes; None if they do."""
    names = [task.name for task in tasks]
    for task in tasks:
        fits = (task.kind == CLASSES) == (task.name == CLASSES) and names.count(task.name) == 1
        if task.is_regression:
            fits &= not task.per_class or (CLASSES in names and task.num_classes == num_classes)
        elif task.kind == CLASSES:
            fits &= task.num_classes == num_classes
        if not fits:
            return f"the task {task.name[:100]} does not fit the classes and the other tasks"
    return None
