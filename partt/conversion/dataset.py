"""What all formats share: a dataset as a stream of tables, and checks of its values."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from partt.data.jagged import Array, Table
from partt.errors import DataError, ParttError

JETS_PER_TABLE = 1000  # and per basket of the ROOT file; limits memory
MAX_SLOTS = 4096  # particles of a padded jet


@dataclass(frozen=True)
class Dataset:
    """Jets in the order of the file; tables are read one at a time."""

    num_jets: int
    tables: Iterator[Table]


def ranges(num_jets: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop (excluded) of each table; a file without jets gives one empty table."""
    for start in range(0, max(num_jets, 1), JETS_PER_TABLE):
        yield start, min(start + JETS_PER_TABLE, num_jets)


@contextmanager
def reading_errors(path: Path, what: str, kind: str) -> Iterator[None]:
    """Turn the errors that a broken file causes in its reader into one clear DataError."""
    try:
        yield
    except (ParttError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except PermissionError as error:
        raise DataError(f"{path}: no permission to read it") from error
    except Exception as error:  # a broken file can make its reader raise anything
        detail = " ".join(str(error).split())[:300]
        raise DataError(f"{path}: cannot read {what}: {detail}; is it a complete {kind} file?") from error


def check_finite(values: Array, what: str, path: Path, first_entry: int) -> None:
    """Raise an error that names the first entry (axis 0) that is not finite."""
    finite = _all_within_entry(np.isfinite(values))
    if not finite.all():
        entry = first_entry + int(np.argmin(finite))
        raise DataError(f"{path}, entry {entry}: {what} is not finite; the file is damaged, copy it again")


def checked_labels(values: Array, what: str, path: Path, first_entry: int) -> Array:
    """Return labels as integers; raise an error that names the first that is neither 0 nor 1."""
    good = _all_within_entry(np.isin(values, (0, 1)))
    if not good.all():
        jet = int(np.argmin(good))
        found = " ".join(str(values[jet]).split())
        raise DataError(f"{path}, entry {first_entry + jet}: {what} must be 0 or 1, not {found}")
    return values.astype(np.int32)


def _all_within_entry(good: Array) -> Array:
    flat = good.reshape(len(good), math.prod(good.shape[1:]))
    return np.asarray(flat.all(axis=1))
