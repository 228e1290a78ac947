"""The contract of objectives: what is learned, as the training loop sees it.

Loop, checkpoints, log and screen use objectives only through this module.

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
from partt.model.tasks import Task


@dataclass(frozen=True)
class Metric:
    """A number by which epochs are compared."""

    name: str  # in the recipe, metrics.jsonl and TensorBoard
    title: str  # on the screen
    better: Literal["lower", "higher", "nearer zero"]

    def is_better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best so far."""
        if best is None:
            return True
        if self.better == "nearer zero":
            return abs(value) < abs(best)
        return value < best if self.better == "lower" else value > best


LOSS = Metric("loss", "loss", "lower")  # every objective has it


@dataclass(frozen=True, eq=False)
class Losses:
    """Loss of a batch in training, and sums for the metrics."""

    loss: Tensor  # (), is minimised
    sums: Mapping[str, Tensor]  # over the jets of the batch, for the metrics of the epoch


@dataclass(frozen=True, eq=False)
class Measurements:
    """Sums and values of validation jets; the metrics are computed from those of all jets, on the CPU.

    Those of a batch may be on a GPU, which is not waited for after every batch.
    """

    num_jets: int = 0
    sums: Mapping[str, Tensor] = field(default_factory=dict)  # batches are added
    values: Mapping[str, Tensor] = field(default_factory=dict)  # (B, ...), batches are concatenated

    def cpu(self) -> "Measurements":
        """Return them on the CPU."""
        return Measurements(
            self.num_jets,
            {name: total.cpu() for name, total in self.sums.items()},
            {name: value.cpu() for name, value in self.values.items()},
        )


def join_measurements(parts: Sequence[Measurements]) -> Measurements:
    """Join the measurements of several batches or processes."""
    known = [part for part in parts if part.num_jets]
    if not known:
        return Measurements()
    return Measurements(
        sum(part.num_jets for part in known),
        {name: reduce(torch.add, [part.sums[name] for part in known]) for name in known[0].sums},
        {name: torch.cat([part.values[name] for part in known]) for name in known[0].values},
    )


class Objective(nn.Module, ABC):
    """What is learned. Parameters of its own, if any, are trained with the network."""

    heads: Mapping[str, int]
    """the heads that the network needs: name -> number of outputs"""
    tasks: tuple[Task, ...] = ()
    """what the outputs of these heads mean, for the tagger file; heads without a task are not predicted"""
    needs_tokens: bool = False
    """whether the outputs must have the tokens of particles (`partt.model.network.tokens_of`)"""
    needs_labels: bool = True
    """whether the classes of jets must be known; otherwise they are read if all files have them"""
    particle_labels: tuple[str, ...] = ()
    """the classes of particles that batches must have, by their names in the data config"""
    training_metrics: tuple[Metric, ...] = (LOSS,)
    """of the training jets, shown while an epoch runs"""
    validation_metrics: tuple[Metric, ...] = (LOSS,)
    """of the validation jets; the recipe's `metric` is one of them"""
    default_metric: str = LOSS.name
    """name of the metric that chooses the best epoch, unless the recipe has another"""

    def metric(self, name: str | None) -> Metric:
        """Return the validation metric with a name, or the default."""
        known = {metric.name: metric for metric in self.validation_metrics}
        if (name or self.default_metric) not in known:
            raise ConfigError(f"metric: no validation metric {name!r}; choose one of {', '.join(known)}")
        return known[name or self.default_metric]

    def prepare(self, network: Network) -> None:
        """Make parameters that depend on the network; raise an error if it lacks what is needed.

        Called before training starts, with the seed of the network's weights.
        """

    @abstractmethod
    def losses(self, outputs: Outputs, batch: JetBatch) -> Losses:
        """Return the loss of a batch, and the sums that `training_values` needs, from the heads' outputs."""

    @abstractmethod
    def measurements(self, outputs: Outputs, batch: JetBatch) -> Measurements:
        """Return the measurements of a batch of validation jets, from the heads' outputs, on their device."""

    def forward(self, network: Network, batch: JetBatch) -> Losses:
        """Run the network for training."""
        return self.losses(self.run(network, batch), batch)

    def measure(self, network: Network, batch: JetBatch) -> Measurements:
        """Run the network for validation."""
        return self.measurements(self.run(network, batch), batch)

    def run(self, network: Network, batch: JetBatch) -> Outputs:
        """Run the network; override this to feed it other inputs than those of the batch."""
        run = network.outputs_and_tokens if self.needs_tokens else network
        outputs: Outputs = run(batch.inputs)
        return outputs

    @abstractmethod
    def validation_values(self, measured: Measurements) -> dict[str, float | None]:
        """Return the validation metrics by name; None where one is not defined."""

    def training_values(self, sums: Mapping[str, float], num_jets: int) -> dict[str, float]:
        """Return the training metrics by name, from the sums over an epoch so far: by default, means."""
        return {
            metric.name: sums.get(metric.name, 0.0) / max(num_jets, 1) for metric in self.training_metrics
        }

    def check_training(self, jets: Mapping[str, int]) -> None:
        """Raise an error if nothing can be learned from training jets of these classes."""

    def notices(self, training: Mapping[str, int], validation: Mapping[str, int]) -> list[str]:
        """Return what users should know about the numbers of jets by class, before the run starts."""
        del training, validation
        return []

    def check_validation(self, index: JetIndex, metric: str) -> None:
        """Raise an error if a metric is not defined for the indexed validation jets."""
