"""Several tasks at once: the weighted sum of their losses, and the metrics of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_index import JetIndex
from partt.errors import DataError
from partt.model.network import Network, Outputs
from partt.model.state_dicts import with_prefix, without_prefix
from partt.training.objectives.objective import LOSS, Losses, Measurements, Metric, Objective

Value = TypeVar("Value")


@dataclass(frozen=True)
class Term:
    """An objective and its weight in the sum."""

    objective: Objective
    weight: float


class SumOfTasks(Objective):
    """loss = Σ weight x loss of a task; the metrics are those of all tasks, losses named after their task."""

    def __init__(self, terms: Mapping[str, Term]) -> None:
        super().__init__()
        self.objectives = nn.ModuleDict({name: term.objective for name, term in terms.items()})
        self.terms = dict(terms)
        self.heads = {head: size for term in terms.values() for head, size in term.objective.heads.items()}
        self.tasks = tuple(task for term in terms.values() for task in term.objective.tasks)
        self.needs_tokens = any(term.objective.needs_tokens for term in terms.values())
        self.needs_labels = any(term.objective.needs_labels for term in terms.values())
        self.particle_labels = tuple(
            name for term in terms.values() for name in term.objective.particle_labels
        )
        self.training_metrics = (LOSS, *self._metrics("training_metrics"))
        self.validation_metrics = (LOSS, *self._metrics("validation_metrics"))

    def prepare(self, network: Network) -> None:
        """Make the parameters of all tasks."""
        for term in self.terms.values():
            term.objective.prepare(network)

    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the weighted sum of the losses, and the sums of every task."""
        total = torch.zeros((), device=batch.weights.device)
        sums: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            part = term.objective.losses(outputs, batch)
            total = total + term.weight * part.loss
            sums |= with_prefix(f"{name}/", part.sums)
        return Losses(total, sums)

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return the total loss, and the metrics of every task."""
        total = 0.0
        values: dict[str, float] = {}
        for name, term in self.terms.items():
            found = term.objective.training_values(without_prefix(f"{name}/", sums), num_jets)
            total += term.weight * found[LOSS.name]
            values |= _renamed(name, found)
        return {LOSS.name: total, **values}

    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return the measurements of every task."""
        sums: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        for name, term in self.terms.items():
            part = term.objective.measurements(outputs, batch)
            sums |= with_prefix(f"{name}/", part.sums)
            values |= with_prefix(f"{name}/", part.values)
        return Measurements(len(batch), sums, values)

    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return the total loss, and the metrics of every task; a target that no jet has adds no loss."""
        losses: list[float] = []
        values: dict[str, float | None] = {}
        for name, term in self.terms.items():
            sums = without_prefix(f"{name}/", measured.sums)
            kept = without_prefix(f"{name}/", measured.values)
            found = term.objective.validation_values(Measurements(measured.num_jets, sums, kept))
            loss = found[LOSS.name]
            if loss is not None:
                losses.append(term.weight * loss)
            values |= _renamed(name, found)
        if not losses:
            raise DataError(f"no validation jet has a known value of {', '.join(self.terms)}")
        return {LOSS.name: sum(losses), **values}

    def check_training(self, jets: Mapping[str, int]) -> None:
        """Raise an error if a task cannot be learned."""
        for term in self.terms.values():
            term.objective.check_training(jets)

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return the notices of all tasks."""
        return [text for term in self.terms.values() for text in term.objective.notices(training, validation)]

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if a metric is not defined for the indexed validation jets."""
        for term in self.terms.values():
            term.objective.check_validation(index, metric)

    def _metrics(self, kind: str) -> list[Metric]:
        return [
            _loss_of(name) if metric == LOSS else metric
            for name, term in self.terms.items()
            for metric in getattr(term.objective, kind)
        ]


def _renamed(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return metrics of a task, its loss under its own name."""
    return {_loss_of(name).name if key == LOSS.name else key: value for key, value in values.items()}


def _loss_of(task: str) -> Metric:
    return Metric(f"{task}_loss", f"{task} loss", "lower")
