"""What a run reports while it is running; the command line turns it into a screen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from partt.training.objectives.objective import Metric
from partt.training.validation import MetricValues


@dataclass(frozen=True)
class Started:
    """The run is about to take its first step, or its next one."""

    network: str
    jets: Mapping[str, Mapping[str, int]]  # training and validation: jets by class
    training_metrics: tuple[Metric, ...]
    validation_metrics: tuple[Metric, ...]
    device: str
    num_threads: int
    num_processes: int
    num_parameters: int
    num_trainable: int
    first_step: int
    num_steps: int
    num_epochs: int


@dataclass(frozen=True)
class StepDone:
    """A step is done."""

    epoch: int  # the first is 0
    num_epochs: int
    step: int  # steps done
    epoch_start: int  # steps done when the epoch began
    epoch_end: int
    num_steps: int
    metrics: Mapping[str, float]  # of the epoch so far
    lr: float
    jets_per_second: float  # of all processes, since the epoch began or the run went on
    waiting: float  # part of the time spent waiting for data
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
    """Something that a user should know of."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The run is over."""

    stopped: bool  # by a signal, before the end
    step: int
    metric: str
    best_value: float | None
    best_epoch: int | None
    tagger: Path  # of the best epoch


Event = Started | StepDone | Validating | EpochEnded | Notice | Ended
Report = Callable[[Event], None]
