"""What a file holds (entries, branches with their types, chunks), and checks of what is asked of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from partt.config import did_you_mean
from partt.data.jagged import AnyColumn, Jagged
from partt.errors import DataError

MAX_ENTRIES = 2**32
NOTE = "partt"  # name of the ROOT object, or key of the parquet metadata, that holds a file's note


@dataclass(frozen=True)
class FileInfo:
    """What one file holds, without the values."""

    url: str
    tree: str  # with a cycle only if one was requested; "" for parquet
    num_entries: int
    branches: Mapping[str, str]  # "float32", "float32[]" for jagged, "float32[][]" (through input maps only)
    chunks: tuple[tuple[int, int], ...]  # consecutive entry ranges that together cover all entries
    identity: str  # changes when the file changes

    @property
    def where(self) -> str:
        """File and tree, for messages."""
        return f"{self.url}: tree {self.tree!r}" if self.tree else self.url

    def hint(self, name: str, others: Collection[str] = ()) -> str:
        """Say what may be meant by a branch that the file lacks; `others` are known to be others."""
        return did_you_mean(name, [branch for branch in self.branches if branch not in others])


def make_chunks(boundaries: Iterable[int], max_chunk: int) -> tuple[tuple[int, int], ...]:
    """Turn boundaries, from 0 to the number of entries, into ranges of at most `max_chunk` entries.

    Ranges end at boundaries. Where two boundaries are further apart, a range has up to half as many entries
    more, and is cut into equal parts beyond that: all of a basket is decompressed for each of its parts.
    Impossible boundaries are a ValueError.
    """
    chunks: list[tuple[int, int]] = []
    edges = sorted(set(boundaries))  # parquet may have row groups without rows
    if edges and not 0 <= edges[0] <= edges[-1] <= MAX_ENTRIES:  # a flipped bit makes 2^62 of a thousand
        raise ValueError(f"{edges[-1]} entries: a file holds at most {MAX_ENTRIES}, so it is damaged")
    for first, last in pairwise(edges):
        if chunks and last - chunks[-1][0] <= max_chunk:
            chunks[-1] = (chunks[-1][0], last)
            continue
        parts = -(-(last - first) // (max_chunk * 3 // 2))
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        chunks.extend(pairwise(cuts))
    return tuple(chunks)


def check_request(
    info: FileInfo, branches: Sequence[str], start: int, stop: int | None, *, nested: bool = False
) -> int:
    """Raise an error unless a file has the requested branches and entries; return the entry to stop at."""
    for branch in branches:
        if branch not in info.branches:
            some = ", ".join(sorted(info.branches)[:5]) or "none"
            hint = did_you_mean(branch, list(info.branches)) or f"; some of its branches: {some}"
            raise DataError(f"{info.where} has no branch {branch!r}{hint}")
        kind = info.branches[branch]
        if not is_number_type(kind.removesuffix("[]") if nested and kind.endswith("[][]") else kind):
            raise DataError(
                f"{info.where}: branch {branch!r} has type {kind}; only numbers, bools and lists of them can "
                "be read" + ("; lists of lists need an input map (--input)" * kind.endswith("[][]"))
            )
    if stop is None:
        stop = info.num_entries
    if not 0 <= start <= stop <= info.num_entries:
        raise DataError(
            f"{info.where} has {info.num_entries} entries, so {start} to {stop} cannot be read; "
            "did the file change after it was indexed?"
        )
    return stop


def check_identity(info: FileInfo, identity: str | None) -> None:
    """Raise an error if a file changed since it was inspected."""
    if identity is not None and identity != info.identity:
        raise DataError(f"{info.url}: the file changed after it was inspected; run again")


def is_number_type(type_name: str) -> bool:
    """Tell whether a branch of this type can be read."""
    try:
        return np.dtype(type_name.removesuffix("[]")).kind in "biuf"
    except TypeError:
        return False


def share_offsets(columns: Mapping[str, AnyColumn]) -> dict[str, AnyColumn]:
    """Let jagged columns of equal lengths share one offsets array, so that comparing them costs nothing."""
    known: list[np.ndarray] = []
    shared: dict[str, AnyColumn] = {}
    for name, column in columns.items():
        if isinstance(column, Jagged):
            offsets = next((same for same in known if np.array_equal(same, column.offsets)), None)
            if offsets is None:
                known.append(column.offsets)
            else:
                column = Jagged(column.contents, offsets)  # noqa: PLW2901
        shared[name] = column
    return shared
