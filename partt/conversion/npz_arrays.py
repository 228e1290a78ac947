"""Arrays of an NPZ file, read row by row, because a file may not fit into memory; nothing is unpickled."""

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy_format

from partt.conversion.dataset import MAX_SLOTS, reading_errors
from partt.data.jagged import Array
from partt.errors import DataError
from partt.regular_files import require_regular

MAX_LISTED = 10  # names in a message


@dataclass(frozen=True)
class NpzArray:
    """One array of an NPZ file, read sequentially."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    stream: IO[bytes]

    def read_rows(self, count: int) -> Array:
        """Return the next rows."""
        row_shape = self.shape[1:]
        num_bytes = count * math.prod(row_shape) * self.dtype.itemsize
        with reading_errors(self.path, self.name, "NPZ"):
            data = self.stream.read(num_bytes)
            if len(data) != num_bytes:
                raise EOFError("the array ends too early")
            return np.frombuffer(data, self.dtype).reshape(count, *row_shape)

    def read_end(self) -> None:
        """Raise an error if more data follow, or if the checksum is wrong."""
        with reading_errors(self.path, self.name, "NPZ"):
            if self.stream.read(1):
                raise ValueError("more data than its shape says")


@contextmanager
def open_npz(path: Path, names: Sequence[str]) -> Iterator[list[NpzArray]]:
    """Open arrays of an NPZ file, which must have the same number of rows."""
    with ExitStack() as stack:
        require_regular(path)
        with reading_errors(path, "the file", "NPZ"):
            file = stack.enter_context(zipfile.ZipFile(path))
        known = [name.removesuffix(".npy") for name in file.namelist() if name.endswith(".npy")]
        for name in names:
            if name not in known:
                others = ", ".join(repr(other)[1:-1] for other in known[:MAX_LISTED]) or "none"
                raise DataError(f"{path} has no array {name!r}; it has: {others}")
        arrays = []
        for name in names:
            with reading_errors(path, name, "NPZ"):
                stream = stack.enter_context(file.open(f"{name}.npy"))
                array = NpzArray(path, name, *_read_header(stream), stream)
                expected = math.prod(array.shape) * array.dtype.itemsize
                found = file.getinfo(f"{name}.npy").file_size - stream.tell()
                if found != expected:
                    raise ValueError(f"its shape {array.shape} needs {expected} bytes, but it has {found}")
                arrays.append(array)
        for array in arrays:
            if array.shape[:1] != arrays[0].shape[:1]:
                shapes = ", ".join(f"{array.name} {array.shape}" for array in arrays)
                raise DataError(f"{path}: the arrays have different numbers of jets: {shapes}")
        yield arrays


def require_shape(array: NpzArray, wanted: tuple[int | None, ...]) -> None:
    """Raise an error unless an array holds numbers in the wanted shape; None means any length."""
    fits = len(array.shape) == len(wanted) and all(
        size in {None, found} for size, found in zip(wanted, array.shape, strict=True)
    )
    if not fits or array.dtype.kind not in "biuf":
        text = ", ".join("any" if size is None else str(size) for size in wanted)
        raise DataError(
            f"{array.path}: {array.name} is {array.dtype} {array.shape}; expected numbers of shape ({text})"
        )
    if max(array.shape[1:], default=0) > MAX_SLOTS:
        raise DataError(f"{array.path}: {array.name} {array.shape}: at most {MAX_SLOTS} particles per jet")


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy_format.read_magic(stream)
    if version not in {(1, 0), (2, 0)}:
        raise ValueError(f"version {version} of the format is not supported")
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    if is_fortran and len(shape) > 1:
        raise ValueError("it is stored column by column; save it again with np.ascontiguousarray")
    return shape, dtype
