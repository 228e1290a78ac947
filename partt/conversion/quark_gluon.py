"""The quark-gluon dataset of EnergyFlow (Zenodo 3164691; Herwig: 3066475): NPZ with X (N, P, 4) and y (N,).

X holds pT, rapidity, azimuth and PDG code, padded with zeros; y is 1 for quarks, 0 for gluons. As in the
published conversion (arXiv:2202.03772), particles are taken as massless, so that rapidity equals
pseudorapidity, and sorted by decreasing pT.

Axes: N jets, P slots for particles, T particles of all jets together.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from partt.conversion.dataset import Dataset, check_finite, checked_labels, ranges
from partt.conversion.jet_branches import jet_branches, jet_offsets
from partt.conversion.npz_arrays import NpzArray, open_npz, require_shape
from partt.data.jagged import Array, Jagged, Table
from partt.errors import DataError

CHARGED_HADRONS, NEUTRAL_HADRONS = (211, 321, 2212), (130, 2112)
MAX_PID = np.iinfo(np.int32).max
PHOTON, ELECTRON, MUON = 22, 11, 13


@contextmanager
def open_quark_gluon(path: Path) -> Iterator[Dataset]:
    """Open a file of the dataset."""
    with open_npz(path, ("X", "y")) as (particles, labels):
        require_shape(particles, (None, None, 4))
        require_shape(labels, (None,))
        yield Dataset(labels.shape[0], _tables(particles, labels))


def _tables(particles: NpzArray, labels: NpzArray) -> Iterator[Table]:
    path = particles.path
    for start, stop in ranges(labels.shape[0]):
        values = particles.read_rows(stop - start).astype(np.float64)  # (N, P, 4)
        check_finite(values, "X", path, start)
        order = np.argsort(-values[:, :, 0], axis=1, kind="stable")
        values = np.take_along_axis(values, order[:, :, np.newaxis], axis=1)
        real = values[:, :, 0] > 0
        pt, eta, phi, pid = values[real].T  # (T,) each
        offsets = jet_offsets(real)
        wrong = (pid != np.rint(pid)) | (np.abs(pid) > MAX_PID)
        if wrong.any():
            first = np.argmax(wrong)
            entry = start + np.searchsorted(offsets, first, side="right") - 1
            raise DataError(f"{path}, entry {entry}: X[..., 3] is {pid[first]:g}, which is not a PDG code")
        with np.errstate(over="ignore", invalid="ignore"):  # jet_branches refuses what is not finite
            momenta = (pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta))
        label = checked_labels(labels.read_rows(stop - start), "y", path, start)
        columns = {name: Jagged(column, offsets) for name, column in _particle_kinds(pid).items()}
        yield {**jet_branches(*momenta, offsets, path=path, first_entry=start), **columns, "label": label}
    particles.read_end()
    labels.read_end()


def _particle_kinds(pid: Array) -> dict[str, Array]:
    """Return charge and particle flags (T,) from PDG codes (T,)."""
    kinds = {
        "part_isChargedHadron": np.isin(np.abs(pid), CHARGED_HADRONS),
        "part_isNeutralHadron": np.isin(np.abs(pid), NEUTRAL_HADRONS),
        "part_isPhoton": pid == PHOTON,
        "part_isElectron": np.abs(pid) == ELECTRON,
        "part_isMuon": np.abs(pid) == MUON,
    }
    is_lepton = kinds["part_isElectron"] | kinds["part_isMuon"]  # positive codes have negative charge
    charge = np.sign(pid) * (1.0 * kinds["part_isChargedHadron"] - is_lepton)
    return {
        "part_pid": pid.astype(np.int32),
        "part_charge": charge.astype(np.float32),
        **{name: flags.astype(np.int32) for name, flags in kinds.items()},
    }
