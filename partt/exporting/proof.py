"""Comparison of an exported file with torch, for jets of many lengths.

Axes: N jets, C classes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from partt.data.jagged import Array, Column, Jagged, Table, num_jets
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import NumericalError
from partt.model.heads import CLASSES
from partt.tagger.onnx_file import Feed, InputKind, feeder, run_session
from partt.tagger.tagger_file import TorchTagger

TOLERANCE = 1e-5  # of a score
LENGTHS = (0, 1, 2, 17, 64, 128)
BATCHES = ((0,), (1,), (2,), (17,), (64,), (128,), (0, 0), LENGTHS, LENGTHS[::-1], (2, 17, 17, 0))
JITTER = 0.01  # of random particles, so that no two are equal


def largest_difference(tagger: TorchTagger, inputs: InputKind, session: Any) -> float:
    """Return the largest difference of a score from torch's; above TOLERANCE it is a NumericalError."""
    largest = 0.0
    for jets in _batches(tagger):
        expected = torch_scores(tagger, jets)
        for feed in _feeds(tagger, inputs, jets):
            scores = run_session(session, feed)
            if not np.array_equal(np.isnan(scores), np.isnan(expected)):
                raise NumericalError(
                    "the exported tagger has NaN for other jets than torch: no file is written"
                )
            largest = max(largest, float(np.nanmax(np.abs(scores - expected), initial=0.0)))
    if largest > TOLERANCE:
        raise NumericalError(
            f"the exported tagger's scores differ from torch's by up to {largest:.2g}, more than "
            f"{TOLERANCE:g}: no file is written"
        )
    return largest


def torch_scores(tagger: TorchTagger, jets: Table) -> npt.NDArray[np.float64]:
    """Return the scores (N, C) of the tagger in float32; NaN for bad jets."""
    batch = pack(tagger.data_config, _variables(tagger, jets))
    with torch.inference_mode():
        logits = tagger.network(batch.inputs)[CLASSES]
    scores: npt.NDArray[np.float64] = logits.double().softmax(dim=1).numpy()
    scores[batch.bad.numpy()] = np.nan
    return scores


def random_jets(jets: Table, lengths: Sequence[int], seed: int) -> Table:
    """Return jets of these lengths, with values per jet and varied particles drawn from given jets."""
    random = np.random.default_rng(seed)
    jet_of = random.integers(0, num_jets(jets), len(lengths))
    first = next(column for column in jets.values() if isinstance(column, Jagged))
    rows = random.integers(0, max(len(first.contents), 1), int(np.sum(lengths)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def varied(values: Array) -> Array:
        if values.dtype.kind != "f":
            return values
        return (values * random.normal(1, JITTER, len(values))).astype(values.dtype)

    def drawn(column: Column) -> Column:
        if isinstance(column, Jagged):
            return Jagged(varied(column.contents[rows]), offsets)
        return column[jet_of]

    return {name: drawn(column) for name, column in jets.items()}


def _batches(tagger: TorchTagger) -> Iterator[Table]:
    """Yield the reference jets and random jets, some longer than the maximum length, all in float32."""
    jets = {name: _single(column) for name, column in tagger.reference_jets.items()}
    yield jets
    longest = tagger.data_config.particles.length or LENGTHS[-1]
    for seed, lengths in enumerate([*BATCHES, (longest + 3, 2)]):
        yield random_jets(jets, lengths, seed)


def _feeds(tagger: TorchTagger, inputs: InputKind, jets: Table) -> Iterator[Feed]:
    """Yield all jets as one batch, with as few slots as possible, and with more slots of NaN padding."""
    source = feeder(inputs, tagger.data_config, _variables(tagger, jets))
    feed = source.feed(np.arange(num_jets(jets)))
    yield feed
    padding = {name: 0.0 if name == "pf_mask" else np.nan for name in feed}
    yield {
        name: values
        if values.ndim == 1
        else np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, 3)], constant_values=padding[name])
        for name, values in feed.items()
    }


def _variables(tagger: TorchTagger, jets: Table) -> Variables:
    entries = np.arange(num_jets(jets))
    return Variables(jets, tagger.data_config.formulas, "jets of the comparison", entries)


def _single(column: Column) -> Column:
    """Return a column rounded to float32, the precision of the inputs, in its own type."""
    if isinstance(column, Jagged):
        return Jagged(column.contents.astype(np.float32).astype(column.contents.dtype), column.offsets)
    return column.astype(np.float32).astype(column.dtype)
