"""Variables -> scores: the selected jets through a network, in batches of jets of similar length.

Every operation runs on one thread, and what stands together in a batch depends on the jets alone: results are
the same however many threads share the batches.

Axes: N jets, B selected jets, C classes, D width of the embedding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from partt.data.config.data_config import DataConfig
from partt.data.jet_batch import JetBatch
from partt.data.packing import pack
from partt.data.variables import Variables, passes_selection
from partt.errors import ConfigError

# Particles of a batch: enough for a network to form groups of equal length, few enough to share them out.
ROWS_PER_BATCH = {"cpu": 8192}
ROWS_PER_BATCH_ELSEWHERE = 262_144

Positions: TypeAlias = npt.NDArray[np.int64]
Outputs: TypeAlias = tuple[Tensor, Tensor | None]  # logits (B, C), embeddings (B, D)
Each: TypeAlias = Callable[[Callable[[Positions], Outputs], Sequence[Positions]], Iterable[Outputs]]


@dataclass(frozen=True, eq=False)
class TaggedJets:
    """Scores of all jets: NaN for those that are not selected, or bad."""

    probabilities: npt.NDArray[np.float64]  # (N, C)
    embeddings: npt.NDArray[np.float32] | None  # (N, D)
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input or an output is not finite


def tag(
    model: nn.Module,
    config: DataConfig,
    variables: Variables,
    *,
    with_embeddings: bool = False,
    each: Each = map,
) -> TaggedJets:
    """Return the scores of jets; `each` computes batches like `map`, in any way that keeps their order."""
    if model.training:
        raise ConfigError(
            "the network is in training mode, and would learn from these jets: call model.eval()"
        )
    selected = passes_selection(config, variables, "predict")
    jets = pack(config, variables if selected.all() else variables.take(np.flatnonzero(selected)))
    good = np.flatnonzero(~jets.bad.numpy())
    batches = length_batches(jets.lengths.numpy(), good, _rows_per_batch(model))
    outputs = list(each(lambda batch: _run(model, jets, batch, with_embeddings=with_embeddings), batches))

    places = np.flatnonzero(selected)[np.concatenate(batches)] if batches else good
    logits = np.full((len(selected), len(config.class_names)), np.nan)
    embeddings = None
    if with_embeddings:
        embeddings = np.full((len(selected), embedding_width(model)), np.nan, dtype=np.float32)
    if outputs:
        logits[places] = torch.cat([output for output, _ in outputs]).double().numpy()
        if embeddings is not None:
            embeddings[places] = torch.cat([output for _, output in outputs if output is not None]).numpy()
    probabilities = torch.from_numpy(logits).softmax(dim=1).numpy()
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


def embedding_width(model: nn.Module) -> int:
    """Return the width of the jets' embeddings; an error for a network that has none."""
    if not hasattr(model, "embed_jets"):
        raise ConfigError(f"{type(model).__name__} has no embeddings of jets; Particle Transformers have")
    width: int = model.head.in_features  # type: ignore[union-attr, assignment]
    return width


@contextmanager
def sharing_threads(num_threads: int | None = None) -> Iterator[Each]:
    """Yield an `each` that shares batches between threads (default: as many as torch uses).

    Meanwhile torch uses one thread for each operation: no sum then depends on the number of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(num_threads or before)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


@torch.inference_mode()
def _run(model: nn.Module, jets: JetBatch, batch: Positions, *, with_embeddings: bool) -> Outputs:
    some = jets.take(batch).to(_device(model))
    if not with_embeddings:
        logits: Tensor = model(some.particles, some.momenta, some.offsets, some.points)
        return logits.cpu(), None
    embeddings: Tensor = model.embed_jets(some.particles, some.momenta, some.offsets)  # type: ignore[operator]
    return model.head(embeddings).cpu(), embeddings.float().cpu()  # type: ignore[operator]


def _rows_per_batch(model: nn.Module) -> int:
    return ROWS_PER_BATCH.get(_device(model).type, ROWS_PER_BATCH_ELSEWHERE)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
