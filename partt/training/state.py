"""Where a run stands, beside its weights: numbers that go into the JSON of a checkpoint."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from partt.errors import DataError
from partt.training.validation import Metrics


@dataclass(frozen=True)
class RunState:
    """Steps and epochs done, sums over the present epoch, the best epoch so far."""

    step: int = 0  # of the optimizer
    epoch: int = 0  # epochs done, their validation included
    num_jets: int = 0  # of this epoch, over all processes; so are the next two
    sum_loss: float = 0.0
    num_correct: int = 0
    best_value: float | None = None
    best_epoch: int | None = None

    def after_step(self, num_jets: int, sum_loss: float, num_correct: int) -> "RunState":
        """Return the state after a step."""
        return replace(
            self,
            step=self.step + 1,
            num_jets=self.num_jets + num_jets,
            sum_loss=self.sum_loss + sum_loss,
            num_correct=self.num_correct + num_correct,
        )

    def after_epoch(self, value: float, metric: str) -> "RunState":
        """Return the state after an epoch whose chosen metric has the given value."""
        ended = replace(self, epoch=self.epoch + 1, num_jets=0, sum_loss=0.0, num_correct=0)
        is_best = self.best_value is None or (
            value < self.best_value if metric == "loss" else value > self.best_value
        )
        return replace(ended, best_value=value, best_epoch=self.epoch) if is_best else ended

    @property
    def mean_loss(self) -> float:
        """Mean loss of the epoch so far."""
        return self.sum_loss / max(self.num_jets, 1)

    @property
    def accuracy(self) -> float:
        """Accuracy of the epoch so far, on jets as they are trained on."""
        return self.num_correct / max(self.num_jets, 1)

    def as_json(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return asdict(self)


def chosen_value(metrics: Metrics, metric: Literal["accuracy", "auc", "loss"]) -> float:
    """Return the metric that decides which epoch is the best."""
    if metric == "auc":
        if metrics.auc is None:
            raise DataError("metric: auc needs good validation jets of every class; choose accuracy or loss")
        return metrics.auc
    return metrics.loss if metric == "loss" else metrics.accuracy
