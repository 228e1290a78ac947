"""Output of `partt train`: a first line, a live line, a table of epochs."""

import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Self

from rich.console import Console

from partt.cli.screen import LiveLine, duration
from partt.training.events import Ended, EpochEnded, Event, Notice, Started, StepDone, Validating
from partt.training.objectives.objective import LOSS, Metric

GLUE = "\xa0"  # a space without a line break
WRAPPER = partial(
    textwrap.TextWrapper, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
)


class TrainScreen:
    """Prints the events of a run; on a terminal with a live line."""

    def __init__(self) -> None:
        self._live = LiveLine()
        self._training: tuple[Metric, ...] = ()
        self._validation: tuple[Metric, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        """Print an event, or update the live line."""
        match event:
            case Started():
                self._training, self._validation = event.training_metrics, event.validation_metrics
                _print(_first_line(event))
                if event.first_step:
                    _print(f"resuming after step {event.first_step:,} of {event.num_steps:,}")
                _print(header(event.training_metrics, event.validation_metrics))
            case StepDone():
                title = f"epoch {event.epoch + 1}/{event.num_epochs}"
                done, total = event.step - event.epoch_start, event.epoch_end - event.epoch_start
                self._live.show(title, done, total, progress_details(event, self._training))
            case Validating():
                details = f"{event.num_jets:,} of {event.total:,} jets"
                self._live.show("validating", event.num_jets, event.total, details)
            case EpochEnded():
                _print(epoch_row(event, self._training, self._validation))
            case Notice():
                _print(f"note: {event.text}")
            case Ended():
                self._live.stop()
                _print_end(event)


def header(training: Sequence[Metric], validation: Sequence[Metric]) -> str:
    """Return the header of the table of epochs."""
    columns = "".join(f"{title:>{_width(title)}}" for title in _titles(training, validation))
    return f" epoch{columns}{'lr':>10}{'jets/s':>8}{'waiting':>8}"


def progress_details(event: StepDone, metrics: Sequence[Metric]) -> str:
    """Return metrics, speed and time left, for the live line."""
    quality = ", ".join(f"{metric.title} {event.metrics[metric.name]:.4f}" for metric in metrics)
    speed = f"{event.jets_per_second:,.0f} jets/s, {event.waiting:.0%} waiting"
    return f"{quality}, lr {event.lr:.2e}, {speed}, {duration(event.seconds_left)} left"


def epoch_row(event: EpochEnded, training: Sequence[Metric], validation: Sequence[Metric]) -> str:
    """Return a row of the table of epochs; * marks the best so far."""
    values: list[float | None] = [event.training[metric.name] for metric in training]
    values += [event.validation[metric.name] for metric in validation]
    texts = ["-" if value is None else f"{value:.4f}" for value in values]
    titles = _titles(training, validation)
    columns = "".join(f"{text:>{_width(title)}}" for text, title in zip(texts, titles, strict=True))
    mark = "*" if event.is_best else " "
    speed = f"{event.jets_per_second:>8,.0f}{event.waiting:>8.0%}"
    return f"{mark}{event.epoch + 1:>5}{columns}{event.lr:>10.2e}{speed}"


def _titles(training: Sequence[Metric], validation: Sequence[Metric]) -> list[str]:
    titles = [metric.title for metric in training]
    return titles + [f"val. {metric.title}" if metric == LOSS else metric.title for metric in validation]


def _width(title: str) -> int:
    return max(9, len(title) + 1)


def _print_end(event: Ended) -> None:
    if event.stopped:
        _print(f"stopped after step {event.step:,}, everything is saved; --resume continues")
    elif event.best_value is not None and event.best_epoch is not None:
        best = f"best: epoch {event.best_epoch + 1}, validation {event.metric} {event.best_value:.4f}"
        _print(f"{best}: {event.tagger}")


def _print(text: str) -> None:
    """Print a line, on a terminal wrapped at spaces."""
    if sys.stdout.isatty():
        text = WRAPPER(max(Console().width, 10)).fill(text)
    print(text.replace(GLUE, " "), flush=True)


def _first_line(event: Started) -> str:
    processes = f"{event.num_processes} processes x " if event.num_processes > 1 else ""
    parameters = f"{event.num_parameters:,} parameters"
    if event.num_trainable < event.num_parameters:
        parameters += f" ({event.num_trainable:,} to train)"
    parameters += f", {_short(event.multiply_adds_per_jet)} multiply-adds per jet"
    machine = f"{event.device}, {processes}{event.num_threads} thread{'s' * (event.num_threads > 1)}"
    sets = []
    for name, by_class in event.jets.items():
        classes = ", ".join(f"{label}{GLUE}{count:,}" for label, count in by_class.items())
        num_jets = event.num_jets[name]
        limit = f", {event.validation_jets_per_epoch:,} of them per epoch"
        is_limited = name == "validation" and event.validation_jets_per_epoch < num_jets
        in_classes = f" ({classes})" if by_class else ""
        sets.append(f"{name}: {num_jets:,} jets{in_classes}{limit if is_limited else ''}")
    return f"{machine}; {event.network}, {parameters}; {'; '.join(sets)}"


def _short(number: float) -> str:
    """Return a number with a prefix of the SI: 12.3 M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:,.1f}{GLUE}{unit}"
    return f"{number:.0f}"
