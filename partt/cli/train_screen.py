"""What `partt train` shows: a first line, a live line, a table of epochs."""

import sys
import textwrap
from functools import partial
from typing import TYPE_CHECKING, Self

from rich.console import Console

from partt.cli.screen import LiveLine, duration
from partt.training.events import EpochEnded, Event, Notice, Progress, Started, Validating
from partt.training.job import jets_by_class

if TYPE_CHECKING:
    from partt.training.fit import FitResult
    from partt.training.job import TrainingJob
    from partt.training.run_folder import RunFolder

GLUE = "\xa0"  # a space at which lines are not wrapped
WRAPPER = partial(
    textwrap.TextWrapper, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)
HEADER = " epoch     loss  accuracy val. loss  accuracy     AUC        lr  jets/s waiting"


class TrainScreen:
    """Turns the events of a run into lines, and on a terminal into a live line as well."""

    def __init__(self, job: "TrainingJob", folder: "RunFolder") -> None:
        self._job = job
        self._folder = folder
        self._live = LiveLine()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Started():
                _print(_first_line(self._job, event))
                if event.first_step:
                    _print(f"resuming after step {event.first_step:,} of {event.num_steps:,}")
                _print(HEADER)
            case Progress():
                title = f"epoch {event.epoch + 1}/{event.num_epochs}"
                done, total = event.step - event.epoch_start, event.epoch_end - event.epoch_start
                self._live.show(title, done, total, progress_details(event))
            case Validating():
                details = f"{event.num_jets:,} of {event.total:,} jets"
                self._live.show("validating", event.num_jets, event.total, details)
            case EpochEnded():
                _print(epoch_row(event))
            case Notice():
                _print(f"note: {event.text}")

    def end(self, result: "FitResult") -> None:
        """Say how the run ended."""
        self._live.stop()
        state, metric = result.state, self._job.recipe.metric
        if result.stopped:
            _print(f"stopped after step {state.step:,}, everything is saved; --resume goes on")
        elif state.best_value is not None and state.best_epoch is not None:
            best = f"best: epoch {state.best_epoch + 1}, validation {metric} {state.best_value:.4f}"
            _print(f"{best}: {self._folder.tagger}")


def progress_details(event: Progress) -> str:
    """Return how well an epoch goes, and how fast."""
    quality = f"loss {event.loss:.4f}, accuracy {event.accuracy:.4f}, lr {event.lr:.2e}"
    speed = f"{event.jets_per_second:,.0f} jets/s, {event.waiting:.0%} waiting"
    return f"{quality}, {speed}, {duration(event.seconds_left)} left"


def epoch_row(event: EpochEnded) -> str:
    """Return a row of the table of epochs; the best so far is marked."""
    metrics = event.metrics
    auc = "-" if metrics.auc is None else f"{metrics.auc:.4f}"
    mark = "*" if event.is_best else " "
    training = f"{event.train_loss:>9.4f}{event.train_accuracy:>10.4f}"
    validation = f"{metrics.loss:>10.4f}{metrics.accuracy:>10.4f}{auc:>8}"
    speed = f"{event.jets_per_second:>8,.0f}{event.waiting:>8.0%}"
    return f"{mark}{event.epoch + 1:>5}{training}{validation}{event.lr:>10.2e}{speed}"


def _print(text: str) -> None:
    """Print a line; on a terminal, wrapped between words, never inside a path."""
    if sys.stdout.isatty():
        text = WRAPPER(max(Console().width, 10)).fill(text)
    print(text.replace(GLUE, " "), flush=True)


def _first_line(job: "TrainingJob", event: Started) -> str:
    processes = f"{event.num_processes} processes x " if event.num_processes > 1 else ""
    parameters = f"{event.num_parameters:,} parameters"
    if event.num_trainable < event.num_parameters:
        parameters += f" ({event.num_trainable:,} to train)"
    machine = f"{event.device}, {processes}{event.num_threads} thread{'s' * (event.num_threads > 1)}"
    sets = []
    for name, source, index in (
        ("training", job.train, job.train_index),
        ("validation", job.validation, job.validation_index),
    ):
        classes = ", ".join(
            f"{label}{GLUE}{count:,}" for label, count in jets_by_class(source, index).items()
        )
        sets.append(f"{name}: {index.num_jets:,} jets ({classes})")
    return f"{machine}; {job.recipe.model.name}, {parameters}; {'; '.join(sets)}"
