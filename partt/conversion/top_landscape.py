"""The top quark tagging reference dataset (Zenodo 2603256, arXiv:1902.09914): HDF5 as pandas writes tables.

A row is a jet: E_0, PX_0, PY_0, PZ_0 ... E_199 in GeV, padded with zeros, and is_signal_new, 1 for top jets.
pandas stores columns of one type together in a block, and the names of its columns pickled in an attribute;
here the strings are extracted without unpickling. (PyTables, with which pandas reads such files, unpickles
every attribute of a file.)

Axes: N jets, P slots for particles.
"""

import pickletools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - adds the compressions of pandas to h5py
import numpy as np

from partt.conversion.dataset import Dataset, check_finite, checked_labels, ranges, reading_errors
from partt.conversion.jet_branches import jet_branches, jet_offsets
from partt.data.jagged import Array, Table
from partt.errors import DataError

TABLE = "table/table"
COMPONENTS = ("E", "PX", "PY", "PZ")
LABEL = "is_signal_new"
READ_ERRORS = (OSError, RuntimeError, ValueError, KeyError)


@contextmanager
def open_top_landscape(path: Path) -> Iterator[Dataset]:
    """Open a file of the dataset."""
    with reading_errors(path, "the file", "HDF5", READ_ERRORS):
        file = h5py.File(path, "r")
    with file:
        with reading_errors(path, "the file", "HDF5", READ_ERRORS):
            table = file.get(TABLE)
            if getattr(getattr(table, "dtype", None), "names", None) is None:
                raise DataError(f"{path} has no table {TABLE!r}, as pandas writes it with format='table'")
            columns = _column_names(path, table)
        num_particles = sum(re.fullmatch(r"E_\d+", name) is not None for name in columns)
        names = [f"{component}_{i}" for component in COMPONENTS for i in range(max(num_particles, 1))]
        _require(path, columns, [*names, LABEL])
        positions = np.array([columns.index(name) for name in names]).reshape(len(COMPONENTS), -1)
        yield Dataset(len(table), _tables(path, table, positions, columns.index(LABEL)))


def _tables(path: Path, table: Any, positions: Array, label_position: int) -> Iterator[Table]:
    """Yield the jets; `positions` (4, P) are the columns of the components of momenta."""
    blocks = _blocks(table)
    for start, stop in ranges(len(table)):
        with reading_errors(path, "the file", "HDF5", READ_ERRORS):
            rows = table[start:stop]
        values = np.concatenate([rows[block] for block in blocks], axis=1)  # float64: labels are int64
        momenta = values[:, positions].transpose(1, 0, 2)  # (4, N, P)
        for component, of_jets in zip(COMPONENTS, momenta, strict=True):
            check_finite(of_jets, component, path, start)
        real = momenta[0] > 0
        energy, px, py, pz = momenta[:, real]
        label = checked_labels(values[:, label_position], LABEL, path, start)
        yield {**jet_branches(px, py, pz, energy, jet_offsets(real)), "label": label}


def _blocks(table: Any) -> list[str]:
    return [name for name in table.dtype.names if name.startswith("values_block_")]


def _column_names(path: Path, table: Any) -> list[str]:
    """Return the names of the columns of all blocks, in order."""
    names: list[str] = []
    for block in _blocks(table):
        own, shape = _strings(table.attrs.get(f"{block}_kind", b"")), table.dtype[block].shape
        if shape != (len(own),) or table.dtype[block].base.kind not in "iuf":
            raise DataError(f"{path}: {block} is {table.dtype[block]}, but {len(own)} columns have names")
        names += own
    return names


def _strings(pickled: bytes) -> list[str]:
    """Return the strings of a pickled list of strings, without unpickling it."""
    return [value for _, value, _ in pickletools.genops(bytes(pickled)) if isinstance(value, str)]


def _require(path: Path, columns: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in columns]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        found = ", ".join(columns[:5]) or "none"
        raise DataError(f"{path} lacks the columns {shown}; it has {len(columns)}: {found} ...")
