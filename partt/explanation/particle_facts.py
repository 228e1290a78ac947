"""What is known of the particles that a network sees: momenta, types, charges, displacements.

Axes: N jets, T particles of the main collection in all jets, in the order of the network's inputs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from partt.data.column_meanings import CHARGE, DISPLACEMENT, DISPLACEMENT_ERROR, KINDS, find_column
from partt.data.config.data_config import DataConfig
from partt.data.files.tables import FileInfo
from partt.data.jagged import Array, Jagged
from partt.data.packing import packed_rows
from partt.data.variables import Variables, missing_branches
from partt.scores.passing import Floats

UNKNOWN = "unknown"
DISPLACED = 5.0  # |d0| / error from which a particle counts as displaced


@dataclass(frozen=True, eq=False)
class ParticleFacts:
    """Facts of particles (T,) each; None if the files, or the data config, do not have them."""

    offsets: npt.NDArray[np.int64]  # (N + 1,)
    momenta: Floats | None  # (T, 4) px, py, pz, energy
    kinds: npt.NDArray[np.int64] | None  # position in KIND_NAMES
    charges: Floats | None
    significances: Floats | None  # |d0| / error; NaN for neutral particles

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Particles per jet (N,)."""
        return np.diff(self.offsets)

    @cached_property
    def jets(self) -> npt.NDArray[np.int64]:
        """The jet of each particle (T,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def axes(self) -> Floats | None:
        """The sum of the momenta of each jet (N, 4)."""
        if self.momenta is None:
            return None
        return np.stack(
            [np.bincount(self.jets, part, minlength=len(self.lengths)) for part in self.momenta.T], axis=1
        )

    @cached_property
    def pt(self) -> Floats | None:
        """Transverse momenta (T,)."""
        return None if self.momenta is None else np.hypot(self.momenta[:, 0], self.momenta[:, 1])

    @cached_property
    def places(self) -> Floats | None:
        """Pseudorapidity and azimuth relative to the jet axis (T, 2)."""
        if self.momenta is None or self.axes is None:
            return None
        eta, phi = _directions(self.momenta)
        axis_eta, axis_phi = _directions(self.axes)
        turned = phi - axis_phi[self.jets]
        return np.stack([eta - axis_eta[self.jets], (turned + np.pi) % (2 * np.pi) - np.pi], axis=1)

    @cached_property
    def pt_ranks(self) -> npt.NDArray[np.int64] | None:
        """Position of each particle (T,) in its jet by decreasing pT, from 0."""
        if self.pt is None:
            return None
        order = np.lexsort((-self.pt, self.jets))
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order)) - self.offsets[self.jets[order]]
        return ranks

    @property
    def masses(self) -> Floats | None:
        """The mass of each jet (N,)."""
        if self.axes is None:
            return None
        px, py, pz, energy = self.axes.T
        masses: Floats = np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0.0))
        return masses


KIND_NAMES = (*KINDS, UNKNOWN)


def fact_columns(config: DataConfig, info: FileInfo) -> set[str]:
    """Return the columns of a file, inputs or not, that facts are made of."""
    known = _candidates(config, info.branches)
    names = [find_column(known, ends) for ends in (*KINDS.values(), CHARGE, DISPLACEMENT, DISPLACEMENT_ERROR)]
    found = {name for name in names if name is not None and not missing_branches(config, [name], info)}
    observers = {name for name in config.observers if not missing_branches(config, [name], info)}
    return found | observers


def _candidates(config: DataConfig, branches: Iterable[str]) -> list[str]:
    """Return branches and variables that may belong to the main collection, which a common prefix shows."""
    if not config.collections:
        return []
    prefix = config.main.first_variable.partition("_")[0] + "_"
    return [name for name in dict.fromkeys([*branches, *config.formulas]) if name.startswith(prefix)]


def particle_facts(config: DataConfig, variables: Variables) -> ParticleFacts | None:
    """Return the facts of the particles of the main collection; None if there are no particles."""
    if not config.collections:
        return None
    rows, offsets = packed_rows(config, variables, config.main.name)
    reference = variables[config.main.first_variable]
    columns = _candidates(config, variables.branches)

    def column(name: str | None) -> Array | None:
        """Return the values (T,) of a column with one value for each particle."""
        found = None if name is None else variables[name]
        if not isinstance(found, Jagged) or not isinstance(reference, Jagged):
            return None
        same = np.array_equal(found.offsets, reference.offsets)
        return found.contents[rows].astype(np.float64) if same else None

    momenta = None
    if config.momenta is not None:
        parts = [column(variable.name) for variable in config.momenta.variables]
        momenta = np.stack([part for part in parts if part is not None], axis=1)
    kinds = np.full(len(rows), KIND_NAMES.index(UNKNOWN))
    for number, ends in enumerate(KINDS.values()):
        flags = column(find_column(columns, ends))
        if flags is not None:
            kinds[(flags > 0.5) & (kinds == KIND_NAMES.index(UNKNOWN))] = number
    charges = column(find_column(columns, CHARGE))
    value, error = (column(find_column(columns, ends)) for ends in (DISPLACEMENT, DISPLACEMENT_ERROR))
    significances = None
    if value is not None and error is not None:
        significances = np.divide(np.abs(value), error, out=np.full(len(value), np.nan), where=error > 0)
    has_kinds = (kinds != KIND_NAMES.index(UNKNOWN)).any()
    return ParticleFacts(offsets, momenta, kinds if has_kinds else None, charges, significances)


def _directions(momenta: Floats) -> tuple[Floats, Floats]:
    px, py, pz, _ = momenta.T
    pt = np.hypot(px, py)
    return np.arcsinh(np.divide(pz, pt, out=np.zeros_like(pz), where=pt > 0)), np.arctan2(py, px)
