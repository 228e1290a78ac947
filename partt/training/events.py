"""What a run reports while it goes on; the command line turns it into a screen."""

from collections.abc import Callable
from dataclasses import dataclass

from partt.training.validation import Metrics


@dataclass(frozen=True)
class Started:
    """The run is about to take its first step, or its next one."""

    device: str
    num_threads: int
    num_processes: int
    num_parameters: int
    num_trainable: int
    first_step: int
    num_steps: int
    num_epochs: int


@dataclass(frozen=True)
class Progress:
    """A step is done."""

    epoch: int  # the first is 0
    num_epochs: int
    step: int  # steps done
    epoch_start: int  # steps done when the epoch began
    epoch_end: int
    num_steps: int
    loss: float  # means over the epoch so far
    accuracy: float
    lr: float
    jets_per_second: float  # of all processes, since the epoch began or the run went on
    waiting: float  # part of the time spent waiting for data
    seconds_left: float  # until the last step, at this speed


@dataclass(frozen=True)
class Validating:
    """Validation has come so far."""

    num_jets: int
    total: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch and its validation are done."""

    epoch: int
    num_epochs: int
    step: int
    train_loss: float
    train_accuracy: float
    metrics: Metrics
    is_best: bool
    lr: float
    seconds: float
    jets_per_second: float
    waiting: float


@dataclass(frozen=True)
class Notice:
    """Something that a user should know of."""

    text: str


Event = Started | Progress | Validating | EpochEnded | Notice
Report = Callable[[Event], None]
