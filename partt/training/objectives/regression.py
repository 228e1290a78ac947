"""Regression: loss, bias and resolution of one target.

Axes: B jets, R targets of the data config, K numbers that describe the target.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from partt.data.jet_batch import JetBatch
from partt.errors import DataError
from partt.model.network import Outputs
from partt.model.tasks import Task
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric, Objective
from partt.training.objectives.regression_losses import (
    absolute_error,
    gaussian_nll,
    log_cosh,
    pinball,
    squared_error,
)

OF_VALUES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "log_cosh": log_cosh,
    "mse": squared_error,
    "mae": absolute_error,
}


class Regression(Objective):
    """One number of each jet, with a loss from `regression_losses`.

    Jets whose target is not known (NaN) do not count. With `per_class`, the outputs for the true class are
    trained; with residuals, also those for all classes: l(a, t) + l(a + r_class, t).
    """

    def __init__(self, task: Task, loss: str, column: int) -> None:
        super().__init__()
        self.task = task
        self.loss = loss  # key of OF_VALUES, if the task has one value
        self.column = column  # of JetBatch.targets
        self.heads = {task.name: task.num_outputs}
        self.tasks = (task,)
        self.needs_labels = bool(task.per_class)
        self.bias = Metric(f"{task.name}_bias", f"{task.name} bias", "nearer zero")
        self.width = Metric(f"{task.name}_width", f"{task.name} width", "lower")
        self.validation_metrics = (LOSS, self.bias, self.width)

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the mean of weight x loss over the jets with a known target; 0 if there is none."""
        known, losses = self._losses(outputs, batch)
        total = (losses * batch.weights).sum()
        num_known = known.sum()
        sums = {LOSS.name: total.detach().double(), "known": num_known.double()}
        return Losses(total / num_known.clamp(min=1), sums)

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return the mean loss of the jets with a known target."""
        del num_jets
        return {LOSS.name: sums.get(LOSS.name, 0.0) / max(sums.get("known", 0.0), 1.0)}

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return weighted sums, and the prediction minus the target of every jet, NaN if not known."""
        known, losses = self._losses(outputs, batch)
        weights = batch.weights.where(known, 0.0).double()
        sums = {LOSS.name: (losses.double() * weights).sum(), "weight": weights.sum()}
        predictions = self.task.predictions(outputs)[:, self.task.central]
        return Measurements(len(batch), sums, {"residuals": predictions - self._targets(batch)})

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return the weighted loss, and of prediction - target the median and half the central 68 % width."""
        residuals = measured.values["residuals"].numpy()
        residuals = residuals[np.isfinite(residuals)]
        if not len(residuals):
            return {metric.name: None for metric in self.validation_metrics}
        low, middle, high = np.quantile(residuals.astype(np.float64), [0.16, 0.5, 0.84])
        return {
            LOSS.name: float(measured.sums[LOSS.name] / measured.sums["weight"]),
            self.bias.name: float(middle),
            self.width.name: float(high - low) / 2,
        }

    def _losses(self, outputs: Outputs, batch: JetBatch) -> tuple[Tensor, Tensor]:
        """Return which jets have a known target, and the losses (B,) of these; 0 of the others."""
        targets = self._targets(batch)
        known = targets.isfinite()
        values = self.task.split(outputs[self.task.name].float())
        scaled = self.task.scaled(targets).where(known, 0.0)
        losses = torch.zeros_like(scaled)
        if values.of_all is not None:
            losses = losses + self._loss(values.of_all, scaled)
        if values.of_class is not None:
            if batch.labels is None:
                raise DataError(f"{self.task.name} is learned per class, but these jets have no labels")
            losses = losses + self._loss(values.of(batch.labels), scaled)
        return known, losses.where(known, 0.0)

    def _loss(self, values: Tensor, targets: Tensor) -> Tensor:
        """Return the losses (B,) of outputs (B, K)."""
        if self.task.kind == "gaussian":
            return gaussian_nll(values[:, 0], values[:, 1], targets)
        if self.task.kind == "quantiles":
            return pinball(values, targets, self.task.quantiles)
        return OF_VALUES[self.loss](values[:, 0], targets)

    def _targets(self, batch: JetBatch) -> Tensor:
        if batch.targets is None:
            raise DataError(f"these jets have no target {self.task.target}")
        return batch.targets[:, self.column]
