"""Progress of a run, as stored in the JSON of a checkpoint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from partt.training.objectives.objective import Metric


@dataclass(frozen=True)
class RunState:
    """Steps and epochs done, sums over the current epoch, the best epoch so far."""

    step: int = 0  # of the optimizer
    epoch: int = 0  # epochs done, their validation included
    num_jets: int = 0  # of this epoch, over all processes
    sums: Mapping[str, float] = field(default_factory=dict)  # over these jets, from the objective
    best_value: float | None = None
    best_epoch: int | None = None

    def after_step(self, num_jets: int, sums: Mapping[str, float]) -> "RunState":
        """Return the state after a step."""
        total = {name: self.sums.get(name, 0.0) + value for name, value in sums.items()}
        return replace(self, step=self.step + 1, num_jets=self.num_jets + num_jets, sums=total)

    def after_epoch(self, value: float, metric: Metric) -> "RunState":
        """Return the state after an epoch with this value of the recipe's metric."""
        ended = replace(self, epoch=self.epoch + 1, num_jets=0, sums={})
        if not metric.is_better(value, self.best_value):
            return ended
        return replace(ended, best_value=value, best_epoch=self.epoch)

    def as_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return asdict(self)


def state_from_json(values: Mapping[str, Any]) -> RunState:
    """Return the state in a checkpoint; partt 0.1 stored the two sums of classification by name."""
    if "sum_loss" in values:
        values = dict(values)
        values["sums"] = {"loss": values.pop("sum_loss"), "accuracy": float(values.pop("num_correct"))}
    return RunState(**values)
