"""ROOT files: write tables as one TTree."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import awkward as ak
import numpy as np
import uproot

from partt.atomic_files import atomic_path
from partt.data.files.info import NOTE
from partt.data.jagged import Array, Jagged, Table, to_awkward
from partt.errors import DataError

# Jagged columns that share a counter: prefix -> the rest of their names.
Collections = Mapping[str, list[str]]


def write(
    path: str | Path, first: Table, tables: Iterable[Table], note: Callable[[], str] | None, tree: str
) -> None:
    """Write tables with the columns of `first`, one basket per branch each, and a note.

    Jagged columns with a common prefix and equal lengths in the first table (part_px, part_py) share one
    counter (npart), which may be among the columns.
    """
    collections = _find_collections(first)
    with (
        atomic_path(path) as temporary,
        temporary.open("w+b") as sink,
        uproot.recreate(sink, compression=uproot.LZ4(4)) as file,
    ):
        types = {name: array.type.content for name, array in _to_branches(first, collections).items()}
        out = file.mktree(tree, types, field_name=_field_name, counter_name=lambda name: f"n{name}")
        for number, table in enumerate(tables, start=1):
            problem = _counter_problem(table, collections)
            if problem:
                raise DataError(f"cannot write {path}: table {number}: {problem}")
            out.extend(_to_branches(table, collections))
        if note is not None:
            file[NOTE] = note()


def _find_collections(table: Table) -> Collections:
    found: dict[str, list[str]] = {}
    for name, column in table.items():
        prefix, underscore, rest = name.partition("_")
        if isinstance(column, Jagged) and prefix and underscore and rest:
            found.setdefault(prefix, []).append(rest)

    def is_uniform(prefix: str, rests: list[str]) -> bool:
        offsets = [table[f"{prefix}_{rest}"].offsets for rest in rests]  # type: ignore[union-attr]
        return _is_counter(table, prefix, np.diff(offsets[0])) and all(
            other is offsets[0] or np.array_equal(other, offsets[0]) for other in offsets
        )

    return {
        prefix: rests for prefix, rests in found.items() if is_uniform(prefix, rests) and prefix not in table
    }


def _counter_problem(table: Table, collections: Collections) -> str | None:
    """Say which columns cannot share a counter in this table; None if all can."""
    for prefix, rests in collections.items():
        names = [f"{prefix}_{rest}" for rest in rests]
        lengths = [table[name].lengths for name in names]  # type: ignore[union-attr]
        for name, other in zip(names, lengths, strict=True):
            if not np.array_equal(other, lengths[0]):
                jet = int(np.flatnonzero(other != lengths[0])[0])
                return (
                    f"columns {names[0]!r} and {name!r} share a counter, "
                    f"but jet {jet} has {lengths[0][jet]} and {other[jet]} values"
                )
        if not _is_counter(table, prefix, lengths[0]):
            return f"column 'n{prefix}' is not the number of values of {names[0]!r}, as in the first table"
    return None


def _is_counter(table: Table, prefix: str, lengths: Array) -> bool:
    """Tell whether the counter of a collection may be written: a column of its name has the same numbers."""
    counter = table.get(f"n{prefix}", lengths)
    return not isinstance(counter, Jagged) and np.array_equal(counter, lengths)


def _to_branches(table: Table, collections: Collections) -> dict[str, ak.Array]:
    """Return what uproot writes: each collection zipped, all other columns as they are, but for counters."""
    zipped = {f"{prefix}_{rest}" for prefix, rests in collections.items() for rest in rests}
    zipped |= {f"n{prefix}" for prefix in collections}
    arrays = {}
    for prefix, rests in collections.items():
        columns = {rest: to_awkward(table[f"{prefix}_{rest}"]) for rest in rests}
        arrays[prefix] = ak.zip(columns)
    return arrays | {name: to_awkward(column) for name, column in table.items() if name not in zipped}


def _field_name(outer: str, inner: str) -> str:
    return f"{outer}_{inner}" if outer else inner
