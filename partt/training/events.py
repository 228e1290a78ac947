"""Events that a run reports; the command line displays them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from partt.training.objectives.objective import Metric
from partt.training.validation import MetricValues


@dataclass(frozen=True)
class Started:
    """The run starts, or resumes."""

    network: str
    jets: Mapping[str, Mapping[str, int]]  # "training" and "validation": number of jets by class
    num_jets: Mapping[str, int]  # "training" and "validation": of all classes
    training_metrics: tuple[Metric, ...]
    validation_metrics: tuple[Metric, ...]
    device: str
    num_threads: int
    num_processes: int
    num_parameters: int
    num_trainable: int
    multiply_adds_per_jet: float  # of a forward pass over jets of the training files
    validation_jets_per_epoch: int
    first_step: int
    num_steps: int
    num_epochs: int


@dataclass(frozen=True)
class StepDone:
    """A step of the optimizer is done."""

    epoch: int  # counted from 0
    num_epochs: int
    step: int  # steps done
    epoch_start: int  # steps done when the epoch began
    epoch_end: int
    num_steps: int
    metrics: Mapping[str, float]  # of the epoch so far
    lr: float
    jets_per_second: float  # of all processes, since the epoch began or the run was resumed
    waiting: float  # fraction of the time spent waiting for data
    seconds_left: float  # until the last step, at this speed


@dataclass(frozen=True)
class Validating:
    """Validation progress."""

    num_jets: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch and its validation are done."""

    epoch: int
    num_epochs: int
    step: int
    training: Mapping[str, float]
    validation: MetricValues
    is_best: bool
    lr: float
    seconds: float
    jets_per_second: float
    waiting: float


@dataclass(frozen=True)
class Notice:
    """A message for the user."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The run has ended."""

    stopped: bool  # by a signal, before the end
    step: int
    metric: str
    best_value: float | None
    best_epoch: int | None
    tagger: Path  # of the best epoch


Event = Started | StepDone | Validating | EpochEnded | Notice | Ended
Report = Callable[[Event], None]
