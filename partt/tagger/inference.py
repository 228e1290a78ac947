"""Variables -> scores and predictions: selected jets in batches of similar length, for torch and onnxruntime.

Every operation runs on one thread, and batches depend only on the jets, so results do not depend on the
number of threads that share the batches.

Axes: N jets, B jets of a batch, C classes, D width of the embedding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from partt.data.config.data_config import DataConfig
from partt.data.jet_batch import Positions
from partt.data.variables import Variables, passes_selection
from partt.model.config_types import CLASSES
from partt.model.cpu.allocator import keep_freed_memory
from partt.model.task_columns import task_columns
from partt.model.tasks import Task


@dataclass(frozen=True, eq=False)
class BatchScores:
    """Scores and predictions of the jets of a batch, and embeddings on request."""

    probabilities: npt.NDArray[np.floating]  # (B, C)
    predictions: Mapping[str, npt.NDArray[np.floating]] = field(default_factory=dict)  # column -> (B,)
    embeddings: npt.NDArray[np.float32] | None = None  # (B, D)


Each: TypeAlias = Callable[[Callable[[Positions], BatchScores], Sequence[Positions]], Iterable[BatchScores]]


class RunnableJets(Protocol):
    """Jets prepared for a network."""

    @property
    def lengths(self) -> Positions:
        """Particles per jet (N,)."""

    @property
    def bad(self) -> npt.NDArray[np.bool_]:
        """Jets with inputs that are NaN or infinite, which the network must not get (N,)."""

    def run(self, batch: Positions) -> BatchScores:
        """Return the scores of some of the jets."""


@dataclass(frozen=True, eq=False)
class TaggedJets:
    """Scores and predictions of all jets; NaN if a jet is not selected, or bad."""

    probabilities: npt.NDArray[np.float64]  # (N, C)
    predictions: Mapping[str, npt.NDArray[np.float64]]  # column -> (N,)
    embeddings: npt.NDArray[np.float32] | None  # (N, D)
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input or output is NaN or infinite


def score_jets(
    config: DataConfig,
    tasks: Sequence[Task],
    variables: Variables,
    prepare: Callable[[Variables], RunnableJets],
    *,
    rows_per_batch: int,
    embedding_width: int | None = None,
    each: Each = map,
) -> TaggedJets:
    """Return scores and predictions of jets; `each` is like `map` and may compute several batches at once.

    Batches have about `rows_per_batch` particles. With `embedding_width`, they must have embeddings.
    """
    selected = passes_selection(config, variables, "predict")
    places = np.flatnonzero(selected)
    jets = prepare(variables if selected.all() else variables.take(places))
    batches = length_batches(jets.lengths, np.flatnonzero(~jets.bad), rows_per_batch)
    class_names, num_jets = classes_of(config, tasks), len(selected)
    probabilities = np.full((num_jets, len(class_names)), np.nan)
    columns = [task_columns(task, class_names) for task in tasks if task.is_regression]
    predictions = {name: np.full(num_jets, np.nan) for item in columns for name in item.predicted}
    embeddings = None
    if embedding_width is not None:
        embeddings = np.full((num_jets, embedding_width), np.nan, dtype=np.float32)
    for batch, scores in zip(batches, each(jets.run, batches), strict=True):
        probabilities[places[batch]] = scores.probabilities
        for name, values in predictions.items():
            values[places[batch]] = scores.predictions[name]
        if embeddings is not None:
            embeddings[places[batch]] = scores.embeddings
    predictions |= corrected_values(tasks, predictions, variables)
    numbers = [probabilities, *(values[:, None] for values in predictions.values())]
    numbers += [] if embeddings is None else [embeddings]
    bad = selected & ~np.isfinite(np.concatenate(numbers, axis=1)).all(axis=1)
    for columns_of_jets in (probabilities, *predictions.values()):
        columns_of_jets[bad] = np.nan
    return TaggedJets(probabilities, predictions, embeddings, selected, bad)


def corrected_values(
    tasks: Sequence[Task], predictions: Mapping[str, npt.NDArray[Any]], variables: Variables
) -> dict[str, npt.NDArray[Any]]:
    """Return prediction x variable (N,) by column, where a target is a factor of a variable."""
    return {
        str(task_columns(task).corrected): predictions[task.name] * variables.per_jet(task.factor_of)
        for task in tasks
        if task.factor_of
    }


def classes_of(config: DataConfig, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Return the classes that a tagger has scores of; none if it only has regressions."""
    return config.class_names if any(task.name == CLASSES for task in tasks) else ()


def log_probabilities(probabilities: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return ln p of probabilities (N, C); those that onnxruntime rounds to 0 count as tiny."""
    return np.log(np.maximum(probabilities.astype(np.float64), np.finfo(np.float32).tiny))


def length_batches(lengths: npt.NDArray[np.int64], jets: Positions, max_rows: int) -> list[Positions]:
    """Sort jets by their lengths, longest first, and cut them into batches of about `max_rows` particles."""
    order = jets[np.argsort(-lengths[jets], kind="stable")]
    rows = np.cumsum(np.maximum(lengths[order], 1))
    batch_of_jet = (rows - 1) // max_rows
    edges = np.flatnonzero(np.diff(batch_of_jet, prepend=-1, append=-1)) if len(order) else np.array([0])
    return [order[start:end] for start, end in pairwise(edges)]


@contextmanager
def sharing_threads(num_threads: int | None = None) -> Iterator[Each]:
    """Yield an `each` that shares batches between threads (default: as many as torch uses).

    In the meantime torch uses one thread per operation, so that no sum depends on the number of threads.
    """
    keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(num_threads or before)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)
