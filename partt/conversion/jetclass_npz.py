"""Padded JetClass jets as NPZ: momenta (N, 4, P), points (N, 2, P), mask (N, 1, P), labels (N, 10) one-hot.

Momenta are px, py, pz, E in GeV; points are part_deta, part_dphi. Jets are the sum of their particles; their
jet_sdmass and jet_tau1 to 4 are NaN.

Axes: N jets, P slots for particles.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from partt.conversion.dataset import Dataset, check_finite, checked_labels, ranges
from partt.conversion.jet_branches import jet_branches, jet_offsets
from partt.conversion.npz_arrays import NpzArray, open_npz, require_shape
from partt.data.jagged import Jagged, Table
from partt.errors import DataError

ARRAYS = ("momenta", "points", "mask", "labels")
CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
UNKNOWN = ("jet_sdmass", "jet_tau1", "jet_tau2", "jet_tau3", "jet_tau4")


@contextmanager
def open_jetclass_npz(path: Path) -> Iterator[Dataset]:
    """Open a file."""
    with open_npz(path, ARRAYS) as arrays:
        num_slots = arrays[0].shape[-1] if arrays[0].shape else None
        shapes = ((None, 4, num_slots), (None, 2, num_slots), (None, 1, num_slots), (None, len(CLASSES)))
        for array, shape in zip(arrays, shapes, strict=True):
            require_shape(array, shape)
        yield Dataset(arrays[0].shape[0], _tables(path, arrays))


def _tables(path: Path, arrays: Sequence[NpzArray]) -> Iterator[Table]:
    for start, stop in ranges(arrays[0].shape[0]):
        momenta, points, mask, one_hot = (array.read_rows(stop - start) for array in arrays)
        for array, values in zip(arrays, (momenta, points, mask), strict=False):
            check_finite(values, array.name, path, start)
        labels = checked_labels(one_hot, "labels", path, start)
        if (labels.sum(axis=1) != 1).any():
            jet = int(np.argmax(labels.sum(axis=1) != 1))
            raise DataError(f"{path}, entry {start + jet}: {labels[jet].sum()} labels are set instead of one")
        real = mask[:, 0] > 0  # (N, P)
        offsets = jet_offsets(real)
        (px, py, pz, energy), (deta, dphi) = (
            values.transpose(1, 0, 2)[:, real] for values in (momenta, points)
        )
        table = jet_branches(px, py, pz, energy, offsets, path=path, first_entry=start)
        table["part_deta"] = Jagged(deta.astype(np.float32), offsets)
        table["part_dphi"] = Jagged(dphi.astype(np.float32), offsets)
        table |= {name: np.full(stop - start, np.nan, np.float32) for name in UNKNOWN}
        table |= {f"label_{name}": labels[:, number] for number, name in enumerate(CLASSES)}
        yield table
    for array in arrays:
        array.read_end()
