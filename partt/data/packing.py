"""Variables -> JetBatch: standardised features, packed particles, no padding.

Axes: N jets, T particles of all jets together, F features.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from partt.data.config.data_config import PARTICLES, DataConfig, InputGroup
from partt.data.jagged import Array, Jagged
from partt.data.jet_batch import JetBatch
from partt.data.standardization import standardize, variables_to_fit
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError
from partt.jet_inputs import Collection, JetInputs


def pack(
    config: DataConfig,
    variables: Variables,
    *,
    labels: npt.NDArray[np.int64] | None = None,
    weights: npt.NDArray[np.float32] | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> JetBatch:
    """Pack all jets of `variables`.

    Jets longer than `length` are cut. NaN features become 0 and are counted. A jet with an infinite feature,
    or a NaN or infinite momentum, is marked as bad, and all its inputs are 0.
    """
    if to_fit := variables_to_fit(config):
        names = ", ".join(variable.name for variable in to_fit)
        raise ConfigError(f"preprocess.method is auto, but these variables are not fitted yet: {names}")
    groups = {"particles": config.particles, "momenta": config.momenta, "points": config.points}
    layout = _layout(config.particles, variables)
    blocks = {name: _block(group, variables, layout, dtype) for name, group in groups.items() if group}
    num_nan, bad = _clean(blocks, layout)
    # Filled feature by feature and transposed once: three times faster than filling rows.
    rows = {name: torch.from_numpy(np.ascontiguousarray(block.T)) for name, block in blocks.items()}
    num_jets = len(variables.entries)
    particles = Collection(
        features=rows["particles"],
        offsets=torch.from_numpy(layout.offsets),
        momenta=rows.get("momenta"),
        points=rows.get("points"),
    )
    return JetBatch(
        inputs=JetInputs({PARTICLES: particles}),
        labels=None if labels is None else torch.from_numpy(labels),
        weights=torch.ones(num_jets) if weights is None else torch.from_numpy(weights),
        source_file=torch.zeros(num_jets, dtype=torch.int32),
        source_entry=torch.from_numpy(variables.entries),
        bad=torch.from_numpy(bad),
        num_cut=torch.from_numpy(layout.num_cut.astype(np.int32)),
        num_nan=torch.from_numpy(num_nan),
    )


@dataclass(frozen=True)
class _Layout:
    """Which particles of the branches are used, and to which jets they belong."""

    first: str  # the variable whose lengths all others must have
    branch_offsets: npt.NDArray[np.int64]  # (N + 1,) before the cut
    offsets: npt.NDArray[np.int64]  # (N + 1,)
    rows: npt.NDArray[np.int64] | None  # (T,) particles that are kept; None: all
    num_cut: npt.NDArray[np.int64]  # (N,)

    @property
    def jet_of_row(self) -> npt.NDArray[np.int64]:
        """Which jet each particle belongs to (T,)."""
        return np.repeat(np.arange(len(self.num_cut)), np.diff(self.offsets))


def _layout(particles: InputGroup, variables: Variables) -> _Layout:
    first = particles.variables[0].name
    column = _per_particle(variables, first)
    lengths, longest = column.lengths, particles.length
    if longest is None or len(lengths) == 0 or lengths.max() <= longest:
        return _Layout(first, column.offsets, column.offsets, None, np.zeros_like(lengths))
    kept = np.minimum(lengths, longest)
    offsets = np.concatenate([[0], np.cumsum(kept)])
    rows = np.arange(offsets[-1]) + np.repeat(column.offsets[:-1] - offsets[:-1], kept)
    return _Layout(first, column.offsets, offsets, rows, lengths - kept)


def _block(group: InputGroup, variables: Variables, layout: _Layout, dtype: npt.DTypeLike) -> Array:
    """Return the variables of an input group as the network takes them (F, T)."""
    block = np.empty((len(group.variables), layout.offsets[-1]), dtype=dtype)
    for variable, out in zip(group.variables, block, strict=True):
        column = _per_particle(variables, variable.name)
        if column.offsets is not layout.branch_offsets:
            _check_lengths(variables, variable.name, column, layout)
        contents = column.contents if layout.rows is None else column.contents[layout.rows]
        standardize(contents, variable, out)
    return block


def _clean(blocks: dict[str, Array], layout: _Layout) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Set NaN features and all inputs of bad jets to 0, in place; return NaNs per jet, and the bad jets."""
    num_nan = np.zeros(len(layout.num_cut), dtype=np.int32)
    bad = np.zeros(len(layout.num_cut), dtype=bool)
    for name, block in blocks.items():
        if np.isfinite(block).all():
            continue
        if name != "momenta":
            features, rows = np.nonzero(np.isnan(block))
            block[features, rows] = 0
            num_nan += np.bincount(layout.jet_of_row[rows], minlength=len(num_nan)).astype(np.int32)
        bad[layout.jet_of_row[~np.isfinite(block).all(axis=0)]] = True
    if bad.any():
        for block in blocks.values():
            block[:, bad[layout.jet_of_row]] = 0
    return num_nan, bad


def _check_lengths(variables: Variables, name: str, column: Jagged, layout: _Layout) -> None:
    wrong = np.flatnonzero(column.offsets[1:] != layout.branch_offsets[1:])
    if len(wrong):
        jet = int(wrong[0])
        expected = int(layout.branch_offsets[jet + 1] - layout.branch_offsets[jet])
        raise DataError(
            f"{variables.url}, entry {variables.entries[jet]}: {name} has {int(column.lengths[jet])} values, "
            f"but {layout.first} has {expected}; all inputs of a jet need one value for each of its particles"
        )


def _per_particle(variables: Variables, name: str) -> Jagged:
    column = variables[name]
    if not isinstance(column, Jagged):
        raise DataError(f"{variables.url}: {name} has one value per jet; inputs need one per particle")
    return column
