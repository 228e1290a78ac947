"""What `partt train` shows: a first line, a live line, a table of epochs."""

import sys
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from partt.cli.screen import LINE_EVERY
from partt.train.events import EpochEnded, Event, Notice, Progress, Started, Validating
from partt.train.job import jets_by_class

if TYPE_CHECKING:
    from partt.train.fit import FitResult
    from partt.train.job import TrainingJob
    from partt.train.run_folder import RunFolder

HEADER = (
    "  epoch      step   train loss   accuracy   val. loss   accuracy      AUC         lr    jets/s   waiting"
)


class TrainScreen:
    """Turns the events of a run into lines, and on a terminal into a live line as well."""

    def __init__(self, job: "TrainingJob", folder: "RunFolder") -> None:
        self._job = job
        self._folder = folder
        self._console = Console(stderr=True)
        self._bar = Bar(
            BarColumn(20), TextColumn("{task.description}"), console=self._console, transient=True
        )
        self._task = self._bar.add_task("", total=None)
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def show(self, event: Event) -> None:
        """Show an event."""
        match event:
            case Started():
                self._print(_first_line(self._job, event))
                if event.first_step:
                    self._print(f"resuming after step {event.first_step:,} of {event.num_steps:,}")
                self._print(HEADER)
                if self._console.is_terminal:
                    self._bar.start()
            case Progress():
                done = event.step - event.epoch_start
                self._live(progress_line(event), done, event.epoch_end - event.epoch_start)
            case Validating():
                self._live(
                    f"validating: {event.num_jets:,} of {event.total:,} jets", event.num_jets, event.total
                )
            case EpochEnded():
                self._print(epoch_row(event))
            case Notice():
                self._print(f"note: {event.text}")

    def end(self, result: "FitResult") -> None:
        """Say how the run ended."""
        if self._console.is_terminal:
            self._bar.stop()
        state, metric = result.state, self._job.recipe.metric
        if result.stopped:
            self._print(f"stopped after step {state.step:,}, everything is saved; --resume goes on")
        elif state.best_value is not None and state.best_epoch is not None:
            best = f"best: epoch {state.best_epoch + 1}, validation {metric} {state.best_value:.4f}"
            self._print(f"{best}: {self._folder.tagger}")

    def _print(self, text: str) -> None:
        print(text, flush=True)

    def _live(self, text: str, done: int, total: int) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=text, completed=done, total=total)
        elif time.monotonic() - self._last_line >= LINE_EVERY:
            self._last_line = time.monotonic()
            print(text, file=sys.stderr, flush=True)


def progress_line(event: Progress) -> str:
    """Return how far an epoch has come."""
    steps = f"epoch {event.epoch + 1}/{event.num_epochs}, step {event.step:,}/{event.num_steps:,}"
    quality = f"loss {event.loss:.4f}, accuracy {event.accuracy:.4f}, lr {event.lr:.2e}"
    speed = f"{event.jets_per_second:,.0f} jets/s, {event.waiting:.0%} waiting for data"
    return f"{steps}: {quality}, {speed}, {_duration(event.seconds_left)} left"


def epoch_row(event: EpochEnded) -> str:
    """Return a row of the table of epochs; the best so far is marked."""
    metrics = event.metrics
    auc = "     -" if metrics.auc is None else f"{metrics.auc:.4f}"
    return (
        f"{'*' if event.is_best else ' '} {event.epoch + 1:>5} {event.step:>9,} {event.train_loss:>12.4f} "
        f"{event.train_accuracy:>10.4f} {metrics.loss:>11.4f} {metrics.accuracy:>10.4f}   {auc} "
        f"{event.lr:>10.2e} {event.jets_per_second:>9,.0f} {event.waiting:>9.0%}"
    )


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
        classes = ", ".join(f"{label} {count:,}" for label, count in jets_by_class(source, index).items())
        sets.append(f"{name}: {index.num_jets:,} jets ({classes})")
    return f"{machine}; {job.recipe.model.name}, {parameters}; {'; '.join(sets)}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
