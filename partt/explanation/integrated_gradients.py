"""Integrated gradients (arXiv:1703.01365): how much each feature adds to a jet's log-ratio of scores.

On the straight line from a baseline x0 to the jet x, the gradients of a function F add up to F(x) - F(x0):
IG_i = (x_i - x0_i) * mean over the line of dF / dx_i. The baseline is a background jet without details: each
particle has the mean features of particles in background jets of similar multiplicity. The momenta, and with
them the pair features, stay those of the jet: equal momenta would sit at the cut-offs of the logarithms.

Axes: B jets, T particles of a collection, F features, G features of a jet, C classes, K bins of multiplicity.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from partt.data.jagged import take_rows
from partt.data.jet_batch import Positions, take_inputs
from partt.jet_inputs import JetInputs
from partt.model.config_types import CLASSES
from partt.model.grouping import jet_of_row
from partt.model.network import Network
from partt.scores.passing import Floats
from partt.tagger.inference import length_batches

NUM_STEPS = 32  # midpoints of the line
MAX_DOUBLINGS = 3  # of the steps, for jets whose sum is not complete
TOLERANCE = 0.05  # of the completeness error
ROWS_AT_ONCE = 4096
MULTIPLICITY_BINS = 8

JetFunction = Callable[[JetInputs, Positions], Tensor]  # inputs of some jets, which ones -> (B,)


@dataclass(frozen=True, eq=False)
class Baseline:
    """Mean features of background jets, in bins of multiplicity."""

    edges: npt.NDArray[np.int64]  # (K - 1,) of the multiplicity
    features: Mapping[str, Tensor]  # collection -> (K, F)
    jet_features: Mapping[str, Tensor]  # group -> (K, G)

    def of(self, inputs: JetInputs) -> JetInputs:
        """Return the baselines of jets: their features replaced, all else unchanged."""
        bins = torch.from_numpy(np.searchsorted(self.edges, inputs.lengths.numpy(), side="right"))  # (B,)
        return JetInputs(
            {
                name: replace(item, features=self.features[name][bins[jet_of_row(item.offsets)]])
                for name, item in inputs.collections.items()
            },
            {name: self.jet_features[name][bins] for name in inputs.jet_features},
        )


def mean_baseline(background: JetInputs) -> Baseline:
    """Return the baseline of background jets; the bins have about equally many of them."""
    lengths = background.lengths.numpy()
    levels = np.linspace(0, 1, MULTIPLICITY_BINS + 1)[1:-1]
    edges = np.unique(np.ceil(np.quantile(lengths, levels)).astype(np.int64))
    bins = torch.from_numpy(np.searchsorted(edges, lengths, side="right"))
    num_bins = len(edges) + 1

    def means(rows: Tensor, bin_of_row: Tensor) -> Tensor:
        sums = rows.new_zeros(num_bins, rows.shape[1]).index_add(0, bin_of_row, rows)
        counts = torch.bincount(bin_of_row, minlength=num_bins)[:, None]
        overall = rows.mean(dim=0) if len(rows) else rows.new_zeros(rows.shape[1])
        return torch.where(counts > 0, sums / counts.clamp(min=1), overall)

    return Baseline(
        edges,
        {
            name: means(item.features, bins[jet_of_row(item.offsets)])
            for name, item in background.collections.items()
        },
        {name: means(group, bins) for name, group in background.jet_features.items()},
    )


@dataclass(frozen=True, eq=False)
class Attributions:
    """What each feature adds to the function of its jet."""

    features: Mapping[str, Floats]  # collection -> (T, F)
    offsets: Mapping[str, npt.NDArray[np.int64]]  # collection -> (B + 1,)
    jet_features: Mapping[str, Floats]  # group -> (B, G)
    values: Floats  # (B,) the function of the jets
    baseline_values: Floats  # (B,) that of their baselines
    num_steps: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (B,)

    @property
    def sums(self) -> Floats:
        """The sum of all attributions of each jet (B,)."""
        total = sum((group.sum(axis=1) for group in self.jet_features.values()), np.zeros(len(self.values)))
        for name, rows in self.features.items():
            total = total + _sums_of_jets(rows.sum(axis=1), self.offsets[name])
        return total

    @property
    def errors(self) -> Floats:
        """Completeness errors (B,): |sum - (F(x) - F(x0))| / max(|F(x) - F(x0)|, 1)."""
        change = self.values - self.baseline_values
        return np.abs(self.sums - change) / np.maximum(np.abs(change), 1.0)

    def of_jets(self, name: str) -> Floats:
        """Return the sum of |attribution| over the particles of a collection, (B, F)."""
        return np.stack(
            [_sums_of_jets(np.abs(column), self.offsets[name]) for column in self.features[name].T], axis=1
        )

    def take(self, jets: Positions) -> "Attributions":
        """Return the attributions of some jets, in the given order."""
        features, offsets = {}, {}
        for name, rows in self.features.items():
            chosen, offsets[name] = take_rows(self.offsets[name], jets)
            features[name] = rows[chosen]
        return Attributions(
            features,
            offsets,
            {name: group[jets] for name, group in self.jet_features.items()},
            self.values[jets],
            self.baseline_values[jets],
            self.num_steps[jets],
        )


def log_ratio(network: Network, labels: npt.NDArray[np.int64], background: Sequence[int]) -> JetFunction:
    """Return the function ln(s_S / s_B) of jets, S being the class of each (B,); of background ln(s_B / s_S).

    s_B is the sum over background classes; for background jets, s_S is that over all other classes.
    """

    def function(inputs: JetInputs, jets: Positions) -> Tensor:
        logits = network(inputs)[CLASSES].log_softmax(dim=1)
        own = torch.from_numpy(labels[jets])
        is_background = torch.zeros(logits.shape[1], dtype=torch.bool)
        is_background[list(background)] = True
        signals, backgrounds = (logits[:, mask].logsumexp(dim=1) for mask in (~is_background, is_background))
        of_signal = logits.gather(1, own[:, None])[:, 0] - backgrounds
        return torch.where(is_background[own], backgrounds - signals, of_signal)

    return function


def attribute(
    function: JetFunction, inputs: JetInputs, baseline: Baseline, each: Callable[..., object] = map
) -> Attributions:
    """Return the integrated gradients of jets; jets whose sum is not complete get more steps."""
    everyone = np.arange(len(inputs))
    found = _attribute(function, inputs, baseline, jets=everyone, num_steps=NUM_STEPS, each=each)
    num_steps = NUM_STEPS
    for _ in range(MAX_DOUBLINGS):
        wrong = np.flatnonzero(found.errors > TOLERANCE)
        if not len(wrong):
            break
        num_steps *= 2
        better = _attribute(function, inputs, baseline, jets=wrong, num_steps=num_steps, each=each)
        found = _replaced(found, wrong, better)
    return found


def _attribute(
    function: JetFunction,
    inputs: JetInputs,
    baseline: Baseline,
    *,
    jets: Positions,
    num_steps: int,
    each: Callable[..., object],
) -> Attributions:
    batches = length_batches(inputs.lengths.numpy(), jets, ROWS_AT_ONCE)

    def work(batch: Positions) -> Attributions:
        some = take_inputs(inputs, batch)
        return integrate(lambda on_line: function(on_line, batch), some, baseline.of(some), num_steps)

    parts: list[Attributions] = list(each(work, batches))  # type: ignore[call-overload]
    return _concatenated(parts).take(np.argsort(np.concatenate(batches)))  # `jets` ascend


def integrate(
    function: Callable[[JetInputs], Tensor], inputs: JetInputs, start: JetInputs, num_steps: int
) -> Attributions:
    """Return the integrated gradients of a function of jets, (B,), from `start`, by the midpoint rule."""
    changes = {name: item.features - start.collections[name].features
               for name, item in inputs.collections.items()}  # fmt: skip
    jet_changes = {name: group - start.jet_features[name] for name, group in inputs.jet_features.items()}
    sums = [torch.zeros_like(change) for change in (*changes.values(), *jet_changes.values())]
    for step in range(num_steps):
        part = (step + 0.5) / num_steps
        features = {
            name: (start.collections[name].features + part * change).requires_grad_()
            for name, change in changes.items()
        }
        groups = {
            name: (start.jet_features[name] + part * change).requires_grad_()
            for name, change in jet_changes.items()
        }
        on_line = JetInputs(
            {name: replace(item, features=features[name]) for name, item in inputs.collections.items()},
            groups,
        )
        with torch.enable_grad():
            total = function(on_line).sum()
            gradients = torch.autograd.grad(
                total, [*features.values(), *groups.values()], allow_unused=True, materialize_grads=True
            )
        sums = [so_far + gradient for so_far, gradient in zip(sums, gradients, strict=True)]
    means = [each_sum / num_steps for each_sum in sums]
    with torch.no_grad():
        values, starts = (function(jets).double().numpy() for jets in (inputs, start))
    products = [
        (mean * change).double().numpy()
        for mean, change in zip(means, (*changes.values(), *jet_changes.values()), strict=True)
    ]
    return Attributions(
        dict(zip(changes, products, strict=False)),
        {name: item.offsets.numpy() for name, item in inputs.collections.items()},
        dict(zip(jet_changes, products[len(changes) :], strict=True)),
        values,
        starts,
        np.full(len(values), num_steps),
    )


def _concatenated(parts: Sequence[Attributions]) -> Attributions:
    def lengths_of(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([np.diff(part.offsets[name]) for part in parts])

    return Attributions(
        {name: np.concatenate([part.features[name] for part in parts]) for name in parts[0].features},
        {name: np.concatenate([[0], np.cumsum(lengths_of(name))]) for name in parts[0].offsets},
        {name: np.concatenate([part.jet_features[name] for part in parts]) for name in parts[0].jet_features},
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.baseline_values for part in parts]),
        np.concatenate([part.num_steps for part in parts]),
    )


def _replaced(found: Attributions, jets: Positions, better: Attributions) -> Attributions:
    """Return attributions in which those of some jets are exchanged."""
    num_jets = len(found.values)
    sources = np.arange(num_jets)
    sources[jets] = num_jets + np.arange(len(jets))
    return _concatenated([found, better]).take(sources)


def _sums_of_jets(values: Floats, offsets: npt.NDArray[np.int64]) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    totals: Floats = sums[offsets[1:]] - sums[offsets[:-1]]
    return totals
