"""The contract between the training loop and what is learned.

The loop, the checkpoints, the log and the screen know objectives only through this module.

Axes: B jets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from partt.data.jet_batch import JetBatch
from partt.data.reading.jet_index import JetIndex
from partt.errors import ConfigError
from partt.model.network import Network, Outputs


@dataclass(frozen=True)
class Metric:
    """A number that tells how well an epoch went."""

    name: str  # in the recipe, metrics.jsonl and TensorBoard
    title: str  # on the screen
    better: Literal["lower", "higher"]

    def is_better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best so far."""
        return best is None or (value < best if self.better == "lower" else value > best)


LOSS = Metric("loss", "loss", "lower")  # every objective has it


@dataclass(frozen=True, eq=False)
class Losses:
    """What an objective says of a batch in training."""

    loss: Tensor  # (), to be minimised
    sums: Mapping[str, Tensor]  # over the jets of the batch, for the metrics of the epoch


@dataclass(frozen=True, eq=False)
class Measured:
    """What is kept of validation jets until the metrics are computed from all of them; on the CPU."""

    num_jets: int = 0
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # are added
    values: Mapping[str, Tensor] = field(default_factory=dict)  # (B, ...) are concatenated


def join_measured(parts: Sequence[Measured]) -> Measured:
    """Join what was kept of several batches, or by several processes."""
    known = [part for part in parts if part.num_jets]
    if not known:
        return Measured()
    return Measured(
        sum(part.num_jets for part in known),
        {name: reduce(torch.add, [part.sums[name] for part in known]) for name in known[0].sums},
        {name: torch.cat([part.values[name] for part in known]) for name in known[0].values},
    )


class Objective(nn.Module, ABC):
    """What is learned. It may have parameters of its own, which are trained with the network."""

    heads: Mapping[str, int]
    """the heads that the network needs: task -> number of outputs"""
    training_metrics: tuple[Metric, ...] = (LOSS,)
    """of the training jets, shown while an epoch runs"""
    validation_metrics: tuple[Metric, ...] = (LOSS,)
    """of the validation jets; the recipe's `metric` is one of them"""
    default_metric: str = LOSS.name
    """which of them decides which epoch is the best, if the recipe does not say"""

    def metric(self, name: str | None) -> Metric:
        """Return the validation metric that a recipe names."""
        known = {metric.name: metric for metric in self.validation_metrics}
        if (name or self.default_metric) not in known:
            raise ConfigError(f"metric: {name} is not measured here; choose one of {', '.join(known)}")
        return known[name or self.default_metric]

    @abstractmethod
    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the loss of a batch, and the sums that `training_values` needs, from the heads' outputs."""

    @abstractmethod
    def measured(self, outputs: Outputs, batch: JetBatch) -> Measured:
        """Return what is kept of a batch of validation jets, from the heads' outputs."""

    def forward(self, network: Network, batch: JetBatch) -> Losses:
        """Run the network for training; override this to feed it other inputs than those of the batch."""
        return self.losses(network(batch.inputs), batch)

    def measure(self, network: Network, batch: JetBatch) -> Measured:
        """Run the network for validation."""
        return self.measured(network(batch.inputs), batch)

    @abstractmethod
    def validation_values(self, measured: Measured) -> dict[str, float | None]:
        """Return the validation metrics by name; None where one is not defined."""

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return the training metrics by name, from the sums over an epoch so far: by default, means."""
        return {
            metric.name: sums.get(metric.name, 0.0) / max(num_jets, 1) for metric in self.training_metrics
        }

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if a metric will not be defined for the jets of an index."""
