"""Comparison of an exported file with torch, for jets of many lengths.

Axes: N jets, C classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from partt.data.jagged import Array, Column, Jagged, Table, num_jets
from partt.data.packing import pack
from partt.data.variables import Variables
from partt.errors import NumericalError
from partt.model.task_columns import task_columns
from partt.tagger.inference import BatchScores, corrected_values
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
from partt.tagger.tagger_file import TorchTagger, batch_scores

TOLERANCE = 1e-5  # of a score
RELATIVE_TOLERANCE = 1e-4  # of a prediction, relative to itself or to the scale of the target
LENGTHS = (0, 1, 2, 17, 64, 128)
BATCHES = ((0,), (1,), (2,), (17,), (64,), (128,), (0, 0), LENGTHS, LENGTHS[::-1], (2, 17, 17, 0))
JITTER = 0.01  # of random particles, so that no two are equal


@dataclass(frozen=True)
class Differences:
    """The largest differences of an exported file from torch."""

    of_scores: float = 0.0
    of_predictions: float = 0.0  # relative to the prediction, or to the target's scale if that is larger

    def __or__(self, other: "Differences") -> "Differences":
        """Return the larger ones."""
        return Differences(
            max(self.of_scores, other.of_scores), max(self.of_predictions, other.of_predictions)
        )


def largest_differences(tagger: TorchTagger, inputs: InputKind, session: Any) -> Differences:
    """Compare all outputs with torch's; a NumericalError if they differ by more than the tolerances."""
    largest = Differences()
    for jets in _batches(tagger):
        expected = torch_scores(tagger, jets)
        sizes = _sizes(tagger, jets, expected)
        for feed in _feeds(tagger, inputs, jets):
            largest |= _differences(run_session(session, feed), expected, sizes)
    if largest.of_scores > TOLERANCE:
        raise NumericalError(
            f"the exported tagger's scores differ from torch's by up to {largest.of_scores:.2g}, more than "
            f"{TOLERANCE:g}: no file is written{_hint(tagger, inputs)}"
        )
    if largest.of_predictions > RELATIVE_TOLERANCE:
        raise NumericalError(
            f"the exported tagger's predictions differ from torch's by up to {largest.of_predictions:.2g}, "
            f"relative to their size, more than {RELATIVE_TOLERANCE:g}: no file is written"
        )
    return largest


def _hint(tagger: TorchTagger, inputs: InputKind) -> str:
    """Say what helps if formulas compute momenta: rounding dominates masses of almost parallel particles."""
    config = tagger.data_config
    momenta = [group.momenta for group in config.collections.values() if group.momenta]
    computed = [item.name for group in momenta for item in group.variables if item.name in config.formulas]
    if inputs == "standardised" or not computed:
        return ""
    return (
        f"; formulas compute the momenta ({', '.join(computed)}), and their last digits differ: use "
        "--inputs standardised, or files with these branches"
    )


def torch_scores(tagger: TorchTagger, jets: Table) -> BatchScores:
    """Return scores and predictions of the tagger in float32; NaN for bad jets."""
    variables = _variables(tagger, jets)
    batch = pack(tagger.data_config, variables)
    with torch.inference_mode():
        scores = batch_scores(tagger, tagger.network(batch.inputs), len(batch))
    corrected = corrected_values(tagger.tasks, scores.predictions, variables)
    predictions = {**scores.predictions, **corrected}
    bad = batch.bad.numpy()
    probabilities = np.where(bad[:, None], np.nan, scores.probabilities)
    return BatchScores(
        probabilities, {name: np.where(bad, np.nan, values) for name, values in predictions.items()}
    )


def _sizes(tagger: TorchTagger, jets: Table, expected: BatchScores) -> dict[str, Floats]:
    """Return what differences of predictions are relative to (N,); infinite where either value is right."""
    best_two = np.sort(expected.probabilities, axis=1)[:, -2:]
    undecided = (best_two[:, 1] - best_two[:, 0] <= TOLERANCE) if best_two.shape[1] == 2 else False
    sizes = {}
    for task in tagger.regressions:
        columns = task_columns(task, tagger.class_names)
        for name in columns.predicted:
            sizes[name] = np.maximum(np.abs(expected.predictions[name]), task.scale)
            if task.per_class is True and name not in columns.by_class.values():
                sizes[name] = np.where(undecided, np.inf, sizes[name])  # of the class with the highest score
        if columns.corrected is not None:
            factor = np.abs(_variables(tagger, jets).per_jet(task.factor_of))
            rounding = np.abs(expected.predictions[columns.value]) * _rounding(tagger, jets, task.factor_of)
            sizes[columns.corrected] = sizes[columns.value] * factor + rounding / RELATIVE_TOLERANCE
    return sizes


def _rounding(tagger: TorchTagger, jets: Table, name: str) -> Array:
    """Return how well float32 can know a variable (N,): what two steps of each branch change.

    A mass is a difference of large numbers: of a light jet, few digits are left.
    """

    def changed(column: Column, relative: float) -> Column:
        if _contents(column).dtype.kind != "f":
            return column
        values = _contents(column).astype(np.float64) * (1 + relative)
        return Jagged(values, column.offsets) if isinstance(column, Jagged) else values

    two_steps = 2 * float(np.finfo(np.float32).eps)
    exact = {branch: changed(column, 0.0) for branch, column in jets.items()}
    value = _variables(tagger, exact).per_jet(name)
    total = np.zeros(len(value))
    for branch, column in exact.items():
        other = _variables(tagger, {**exact, branch: changed(column, two_steps)}).per_jet(name)
        total += np.abs(other - value)
    return total


def _differences(found: BatchScores, expected: BatchScores, sizes: Mapping[str, Floats]) -> Differences:
    pairs = [(found.probabilities, expected.probabilities)]
    pairs += [(values, expected.predictions[name]) for name, values in found.predictions.items()]
    if not all(np.array_equal(np.isnan(one), np.isnan(other)) for one, other in pairs):
        raise NumericalError("the exported tagger has NaN for other jets than torch: no file is written")
    relative = [
        _largest((values - expected.predictions[name]) / np.maximum(sizes[name], np.finfo(np.float32).tiny))
        for name, values in found.predictions.items()
    ]
    return Differences(_largest(found.probabilities - expected.probabilities), max(relative, default=0.0))


def _largest(differences: Array) -> float:
    return float(np.nanmax(np.abs(differences), initial=0.0))


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
    needed = raw_branches(config, tagger.factors)
    jets = {name: _single(column) for name, column in tagger.reference_jets.items() if name in needed}
    yield jets
    axis_of = particle_axes(config, jets, tagger.factors)
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
    axes = input_axes(inputs, config, tagger.reference_jets, tagger.factors)
    feed = feeder(inputs, config, _variables(tagger, jets), axes, tagger.factors).feed(
        np.arange(num_jets(jets))
    )
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
