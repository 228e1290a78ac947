"""Variables -> scores: the selected jets in batches of similar length, whatever runs the network.

Every operation runs on one thread, and which jets share a batch depends on the jets alone: results are the
same however many threads share the batches.

Axes: N jets, B jets of a batch, C classes, D width of the embedding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from partt.data.config.data_config import DataConfig
from partt.data.variables import Variables, passes_selection
from partt.model.cpu.allocator import keep_freed_memory

Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BatchScores:
    """What a network says of the jets of a batch."""

    probabilities: npt.NDArray[np.floating]  # (B, C)
    embeddings: npt.NDArray[np.float32] | None = None  # (B, D)


Each: TypeAlias = Callable[[Callable[[Positions], BatchScores], Sequence[Positions]], Iterable[BatchScores]]


class RunnableJets(Protocol):
    """Jets in the form that a network takes."""

    @property
    def lengths(self) -> Positions:
        """Particles per jet (N,)."""

    @property
    def bad(self) -> npt.NDArray[np.bool_]:
        """Jets that the network must not see (N,)."""

    def run(self, batch: Positions) -> BatchScores:
        """Return the scores of some of the jets."""


@dataclass(frozen=True, eq=False)
class TaggedJets:
    """Scores of all jets: NaN for those that are not selected, or bad."""

    probabilities: npt.NDArray[np.float64]  # (N, C)
    embeddings: npt.NDArray[np.float32] | None  # (N, D)
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input or an output is not finite


def score_jets(
    config: DataConfig,
    variables: Variables,
    prepare: Callable[[Variables], RunnableJets],
    *,
    rows_per_batch: int,
    embedding_width: int | None = None,
    each: Each = map,
) -> TaggedJets:
    """Return the scores of jets; `each` computes batches like `map`, in any way that keeps their order.

    Batches have about `rows_per_batch` particles. With `embedding_width`, batches must have embeddings too.
    """
    selected = passes_selection(config, variables, "predict")
    places = np.flatnonzero(selected)
    jets = prepare(variables if selected.all() else variables.take(places))
    batches = length_batches(jets.lengths, np.flatnonzero(~jets.bad), rows_per_batch)
    probabilities = np.full((len(selected), len(config.class_names)), np.nan)
    embeddings = None
    if embedding_width is not None:
        embeddings = np.full((len(selected), embedding_width), np.nan, dtype=np.float32)
    for batch, scores in zip(batches, each(jets.run, batches), strict=True):
        probabilities[places[batch]] = scores.probabilities
        if embeddings is not None:
            embeddings[places[batch]] = scores.embeddings
    bad = selected & np.isnan(probabilities).any(axis=1)
    probabilities[bad] = np.nan
    return TaggedJets(probabilities, embeddings, selected, bad)


def length_batches(lengths: npt.NDArray[np.int64], jets: Positions, max_rows: int) -> list[Positions]:
    """Sort some jets by length (N,), longest first; cut them into batches of about `max_rows` particles."""
    order = jets[np.argsort(-lengths[jets], kind="stable")]
    rows = np.cumsum(np.maximum(lengths[order], 1))
    batch_of_jet = (rows - 1) // max_rows
    edges = np.flatnonzero(np.diff(batch_of_jet, prepend=-1, append=-1)) if len(order) else np.array([0])
    return [order[start:end] for start, end in pairwise(edges)]


@contextmanager
def sharing_threads(num_threads: int | None = None) -> Iterator[Each]:
    """Yield an `each` that shares batches between threads (default: as many as torch uses).

    Meanwhile torch uses one thread for each operation: no sum then depends on the number of threads.
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
