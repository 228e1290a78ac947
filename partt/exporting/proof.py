"""Comparison of an exported file with torch, for jets of many lengths.

Axes: N jets, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from partt.data.jagged import Array, Column, Jagged, Table, num_jets
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import NumericalError
from partt.model.config_types import CLASSES
from partt.tagger.onnx_file import run_session
from partt.tagger.onnx_inputs import (
    Feed,
    Floats,
    InputKind,
    feeder,
    input_axes,
    mask_name,
    particle_axes,
    raw_branches,
)
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


def random_jets(
    jets: Table, axis_of: Mapping[str, str], lengths: Mapping[str, Sequence[int]], seed: int
) -> Table:
    """Return jets with values per jet and varied particles drawn from given jets.

    `axis_of`: branches with values per particle -> axis; `lengths`: axis -> particles of each jet.
    """
    random = np.random.default_rng(seed)
    num_drawn = len(next(iter(lengths.values()), LENGTHS))
    jet_of = random.integers(0, num_jets(jets), num_drawn)
    rows, offsets = {}, {}
    for axis, wanted in lengths.items():
        num_particles = next(len(_contents(jets[name])) for name, own in axis_of.items() if own == axis)
        lengths_of_axis = wanted if num_particles else [0] * num_drawn  # the jets have none to draw
        rows[axis] = random.integers(0, max(num_particles, 1), int(np.sum(lengths_of_axis)))
        offsets[axis] = np.concatenate([[0], np.cumsum(lengths_of_axis)]).astype(np.int64)

    def varied(values: Array) -> Array:
        if values.dtype.kind != "f":
            return values
        return (values * random.normal(1, JITTER, len(values))).astype(values.dtype)

    def drawn(name: str, column: Column) -> Column:
        if isinstance(column, Jagged):
            return Jagged(varied(column.contents[rows[axis_of[name]]]), offsets[axis_of[name]])
        return column[jet_of]

    return {name: drawn(name, column) for name, column in jets.items()}


def _contents(column: Column) -> Array:
    return column.contents if isinstance(column, Jagged) else column


def _batches(tagger: TorchTagger) -> Iterator[Table]:
    """Yield the reference jets and random jets, some longer than the maximum length, all in float32."""
    config = tagger.data_config
    needed = raw_branches(config)
    jets = {name: _single(column) for name, column in tagger.reference_jets.items() if name in needed}
    yield jets
    axis_of = particle_axes(config, jets)
    axes = list(dict.fromkeys(axis_of.values()))
    longest = max([item.length or LENGTHS[-1] for item in config.collections.values()], default=1)
    for seed, lengths in enumerate([*BATCHES, (longest + 3, 2)]):
        # other lengths on every axis, 0 among them
        yield random_jets(
            jets, axis_of, {axis: np.roll(lengths, number).tolist() for number, axis in enumerate(axes)}, seed
        )


def _feeds(tagger: TorchTagger, inputs: InputKind, jets: Table) -> Iterator[Feed]:
    """Yield all jets as one batch, with as few slots as possible, and with more slots of NaN padding."""
    config = tagger.data_config
    axes = input_axes(inputs, config, tagger.reference_jets)
    feed = feeder(inputs, config, _variables(tagger, jets), axes).feed(np.arange(num_jets(jets)))
    yield feed
    masks = {mask_name(config, collection) for collection in config.collections}

    def with_slots(name: str, values: Floats) -> Floats:
        if not isinstance(axes[name][-1], str) or values.ndim == 1:
            return values  # one value per jet
        added = [(0, 0)] * (values.ndim - 1) + [(0, 3)]
        return np.pad(values, added, constant_values=0.0 if name in masks else np.nan)

    yield {name: with_slots(name, values) for name, values in feed.items()}


def _variables(tagger: TorchTagger, jets: Table) -> Variables:
    entries = np.arange(num_jets(jets))
    return Variables(jets, tagger.data_config.formulas, "jets of the comparison", entries)


def _single(column: Column) -> Column:
    """Return a column rounded to float32, the precision of the inputs, in its own type."""
    if isinstance(column, Jagged):
        return Jagged(column.contents.astype(np.float32).astype(column.contents.dtype), column.offsets)
    return column.astype(np.float32).astype(column.dtype)
