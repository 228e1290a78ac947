"""Reweighting: weights that give all classes the same spectrum in chosen variables, such as pT and mass.

`flat`: the spectra become flat; `ref`: they become that of the first class. There is one weight per class and
bin, at most about 1; the classes then have the proportions of `class_weights`. The weights are probabilities
to keep a jet, and can also weight the loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.config.data_config import DataConfig
from partt.data.config.sections import Weights
from partt.data.files.tables import FileInfo, bad_files_skipped
from partt.data.jagged import Array
from partt.data.variables import Variables, scan
from partt.errors import DataError

# The largest weight is below 1, so that even of the rarest jets each pass has different ones.
MAX_WEIGHT = 0.9

Histograms = Mapping[str, npt.NDArray[np.float32]]  # class -> one axis per variable


def fit_reweighting(config: DataConfig, files: Sequence[FileInfo], *, skip_bad: bool = False) -> DataConfig:
    """Return the config with fitted weights, if it has a `reweight_method` and no fitted weights yet.

    With `skip_bad`, files that cannot be read do not count; whoever reads them later says so.
    """
    weights = config.weights
    if weights is None or weights.use_precomputed_weights or weights.reweight_hists is not None:
        return config
    counts = _count_jets(config, weights, files, skip_bad=skip_bad)
    histograms = _make_weights(weights, counts)
    if weights.base_formula is not None:
        # The base weights vary: scale such that nearly all products are below 1.
        jets = [part for file in files for part in _jets_of(config, weights, file, skip_bad=skip_bad)]
        largest = np.percentile(
            np.concatenate([_look_up(histograms, part) for part in jets]), 100 - weights.reweight_threshold
        )
        if not largest > 0:
            raise DataError(f"weights.reweight_basewgt: {weights.reweight_basewgt!r} is zero for most jets")
        histograms = {name: histogram / largest for name, histogram in histograms.items()}
    return config.with_reweight_hists(histograms)


def reweight(config: DataConfig, variables: Variables) -> npt.NDArray[np.float32]:
    """Return the weight of each jet (N,); 0 if it is in none of `reweight_classes`, or in no bin."""
    weights = config.weights
    if weights is None or weights.reweight_hists is None:
        raise DataError("the weights of the data config are not fitted yet")
    histograms = {name: np.asarray(rows, np.float32) for name, rows in weights.reweight_hists.items()}
    return _look_up(histograms, _Jets.of(weights, variables))


@dataclass(frozen=True)
class _Jets:
    """Class, bin and base weight of jets."""

    in_class: Mapping[str, npt.NDArray[np.bool_]]  # (N,) each, by class
    bins: tuple[npt.NDArray[np.int64], ...]  # (N,) each, by variable
    in_range: npt.NDArray[np.bool_]  # (N,)
    base_weights: npt.NDArray[np.float32] | None  # (N,)

    @classmethod
    def of(cls, weights: Weights, variables: Variables) -> "_Jets":
        bins, in_range = [], np.ones(len(variables.entries), dtype=bool)
        for name, edges in weights.reweight_vars.items():
            values = variables.per_jet(name)
            if weights.reweight_discard_under_overflow:
                in_range &= (values >= edges[0]) & (values <= edges[-1])
            bins.append(np.clip(np.digitize(values, edges) - 1, 0, len(edges) - 2))
        in_class = {name: variables.per_jet(name) == 1 for name in weights.reweight_classes}
        return cls(in_class, tuple(bins), in_range, _base_weights(weights, variables))


def _jets_of(config: DataConfig, weights: Weights, file: FileInfo, *, skip_bad: bool) -> list[_Jets]:
    jets: list[_Jets] = []
    with bad_files_skipped(skip_bad):  # without labels: `reweight_classes` are variables of the weights
        jets += [_Jets.of(weights, variables) for variables in scan(config, file, with_labels=False)]
    return jets


def _count_jets(
    config: DataConfig, weights: Weights, files: Sequence[FileInfo], *, skip_bad: bool
) -> Histograms:
    shape = [len(edges) - 1 for edges in weights.reweight_vars.values()]
    counts = {name: np.zeros(shape) for name in weights.reweight_classes}
    for file in files:
        for jets in _jets_of(config, weights, file, skip_bad=skip_bad):
            for name, count in counts.items():
                chosen = jets.in_class[name] & jets.in_range
                base = 1 if jets.base_weights is None else jets.base_weights[chosen]
                np.add.at(count, tuple(positions[chosen] for positions in jets.bins), base)
    for name, count in counts.items():
        if not count.any():
            raise DataError(f"weights: no jet of {name} is in the bins of weights.reweight_vars")
    return {name: count.astype(np.float32) for name, count in counts.items()}


def _make_weights(weights: Weights, counts: Histograms) -> Histograms:
    if weights.reweight_method == "flat":
        shapes = {name: _flat(count, weights.reweight_threshold) for name, count in counts.items()}
    else:
        reference = counts[weights.reweight_classes[0]]
        shapes = {name: _like(reference, count, weights.reweight_threshold) for name, count in counts.items()}
    class_weights = weights.class_weights or (1.0,) * len(shapes)
    kept = {
        name: np.sum(counts[name] * shape) / class_weight if class_weight else np.inf
        for (name, shape), class_weight in zip(shapes.items(), class_weights, strict=True)
    }
    smallest = MAX_WEIGHT * min(kept.values())
    return {name: shape * np.float32(smallest / kept[name]) for name, shape in shapes.items()}


def _flat(counts: Array, threshold: float) -> Array:
    """Return weights ~ 1 / counts, but 1 in the `threshold` per cent of bins with the fewest jets."""
    filled = counts[counts > 0.01 * np.median(counts[counts > 0])]
    return np.minimum(_ratio(np.percentile(filled, threshold), counts), np.float32(1))


def _like(reference: Array, counts: Array, threshold: float) -> Array:
    """Return weights ~ reference / counts, but 1 in the `threshold` per cent of bins with the largest."""
    ratio = _ratio(reference, counts)
    if not ratio.any():
        raise DataError("weights: a class has no bin in common with the first one, the reference")
    largest = np.percentile(ratio[ratio > 0], 100 - threshold)
    return np.asarray(np.minimum(ratio / largest, np.float32(1)))


def _ratio(numerator: Array | np.floating, counts: Array) -> Array:
    """Divide; 0 in empty bins."""
    result = np.zeros_like(counts)
    np.divide(numerator, counts, out=result, where=counts != 0)
    return result


def _look_up(histograms: Histograms, jets: _Jets) -> npt.NDArray[np.float32]:
    result = np.zeros(len(jets.in_range), dtype=np.float32)
    for name, histogram in histograms.items():
        chosen = jets.in_class[name] & jets.in_range
        result[chosen] = histogram[tuple(positions[chosen] for positions in jets.bins)]
    return result if jets.base_weights is None else result * jets.base_weights


def _base_weights(weights: Weights, variables: Variables) -> npt.NDArray[np.float32] | None:
    if weights.base_formula is None:
        return None
    base = variables.per_jet("weights.reweight_basewgt", weights.base_formula).astype(np.float32)
    wrong = ~((base >= 0) & np.isfinite(base))
    if wrong.any():
        jet = int(wrong.argmax())
        raise DataError(
            f"{variables.url}, entry {variables.entries[jet]}: weights.reweight_basewgt is {base[jet]}; "
            "a probability to keep a jet cannot be negative or not finite"
        )
    return base
