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

from partt.conversion.dataset import MAX_SLOTS, Dataset, check_finite, checked_labels, ranges, reading_errors
from partt.conversion.jet_branches import jet_branches, jet_offsets
from partt.data.jagged import Array, Table
from partt.errors import DataError
from partt.regular_files import require_regular

TABLE = "table/table"
COMPONENTS = ("E", "PX", "PY", "PZ")
LABEL = "is_signal_new"
MAX_ROW_BYTES = 8 * (len(COMPONENTS) * MAX_SLOTS + 100)


@contextmanager
def open_top_landscape(path: Path) -> Iterator[Dataset]:
    """Open a file of the dataset."""
    require_regular(path)
    with reading_errors(path, "the file", "HDF5"):
        file = h5py.File(path, "r")
    with file:
        with reading_errors(path, "the file", "HDF5"):
            table = file.get(TABLE)
            if getattr(getattr(table, "dtype", None), "names", None) is None:
                raise DataError(f"{path} has no table {TABLE!r}, as pandas writes it with format='table'")
            _require_stored(path, file, table)
            columns = _column_names(path, table)
        num_particles = sum(re.fullmatch(r"E_\d+", name) is not None for name in columns)
        names = [f"{component}_{i}" for component in COMPONENTS for i in range(max(num_particles, 1))]
        _require(path, columns, [*names, LABEL])
        places = {name: place for place, name in reversed(list(enumerate(columns)))}
        positions = np.array([places[name] for name in names]).reshape(len(COMPONENTS), -1)
        yield Dataset(len(table), _tables(path, table, positions, places[LABEL]))


def _tables(path: Path, table: Any, positions: Array, label_position: int) -> Iterator[Table]:
    """Yield the jets; `positions` (4, P) are the columns of the components of momenta."""
    blocks = _blocks(table)
    for start, stop in ranges(len(table)):
        with reading_errors(path, "the file", "HDF5"):
            rows = table[start:stop]
        values = np.concatenate([rows[block] for block in blocks], axis=1)  # float64: labels are int64
        momenta = values[:, positions].transpose(1, 0, 2)  # (4, N, P)
        for component, of_jets in zip(COMPONENTS, momenta, strict=True):
            check_finite(of_jets, component, path, start)
        real = momenta[0] > 0
        energy, px, py, pz = momenta[:, real]
        label = checked_labels(values[:, label_position], LABEL, path, start)
        yield {
            **jet_branches(px, py, pz, energy, jet_offsets(real), path=path, first_entry=start),
            "label": label,
        }


def _require_stored(path: Path, file: Any, table: Any) -> None:
    """Raise an error unless all rows are in the file: HDF5 makes up rows, or reads them from other files."""
    if table.file.filename != file.filename or table.external or table.is_virtual:
        raise DataError(f"{path}: its table is in another file, which partt does not read")
    if table.ndim != 1 or table.dtype.itemsize > MAX_ROW_BYTES:
        size = f"{table.shape} rows of {table.dtype.itemsize} bytes"
        raise DataError(f"{path}: its table has {size}; a row must be a jet of at most {MAX_SLOTS} particles")
    stored = len(table)
    if table.chunks is not None:
        stored = table.id.get_num_chunks() * table.chunks[0]
    elif table.id.get_storage_size() < table.nbytes:
        stored = table.id.get_storage_size() // table.dtype.itemsize
    if stored < len(table):
        raise DataError(f"{path}: {len(table)} rows, but at most {stored} were written; copy the file again")


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


def _strings(pickled: Any) -> list[str]:
    """Return the strings of a pickled list of strings, without unpickling it."""
    if not isinstance(pickled, bytes | np.void | np.ndarray):
        raise ValueError(f"the names of columns are {type(pickled).__name__}, not pickled bytes")  # noqa: TRY004
    names: Any = pickled
    return [value for _, value, _ in pickletools.genops(bytes(memoryview(names))) if isinstance(value, str)]


def _require(path: Path, columns: Sequence[str], wanted: Sequence[str]) -> None:
    known = set(columns)
    missing = [name for name in wanted if name not in known]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        found = ", ".join(columns[:5]) or "none"
        raise DataError(f"{path} lacks the columns {shown}; it has {len(columns)}: {found} ...")
