"""Inspect, read and write files of jets, local or remote: parquet by the suffix .parquet or .pq, else ROOT.

The only module that chooses between formats. Every failure is a DataError or an OutputError that names the
file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from partt.data.files import parquet, root_reading, root_writing
from partt.data.files.access import AuthenticationError, bad_files_skipped, with_retries
from partt.data.files.info import FileInfo, share_offsets
from partt.data.jagged import AnyColumn, Column, Jagged, Table, num_jets
from partt.errors import DataError

__all__ = [
    "AuthenticationError",
    "FileInfo",
    "bad_files_skipped",
    "inspect_file",
    "read_columns",
    "read_events",
    "read_note",
    "write_table",
]

MAX_CHUNK = 8192  # entries; ten classes of chunks that are shuffled together are then some 400 MB


def inspect_file(url: str, tree: str | None = None, max_chunk: int = MAX_CHUNK) -> FileInfo:
    """Return entries, branches and chunks of a file; `tree` is needed only if there are several."""

    def attempt() -> FileInfo:
        if _is_parquet(url):
            return parquet.inspect(url, max_chunk)
        return root_reading.inspect(url, tree, max_chunk)

    return with_retries(url, "the file", attempt)


def read_columns(
    url: str,
    branches: Sequence[str],
    start: int = 0,
    stop: int | None = None,
    tree: str | None = None,
    *,
    identity: str | None = None,
) -> dict[str, Column]:
    """Return the values of branches for entries from `start` to before `stop` (None: the last).

    Jagged columns of equal lengths share one offsets array. With `identity`, a file that changed since it was
    inspected is an error.
    """
    return _read(url, branches, start, stop, tree=tree, identity=identity, nested=False)  # type: ignore[return-value]


def read_events(info: FileInfo, branches: Sequence[str], start: int, stop: int) -> dict[str, AnyColumn]:
    """Return the values of branches as `read_columns` does; they may also be lists of lists."""
    return _read(info.url, branches, start, stop, tree=info.tree or None, identity=info.identity, nested=True)


def _read(
    url: str,
    branches: Sequence[str],
    start: int,
    stop: int | None,
    *,
    tree: str | None,
    identity: str | None,
    nested: bool,
) -> dict[str, AnyColumn]:
    def attempt() -> dict[str, AnyColumn]:
        if _is_parquet(url):
            return parquet.read(url, branches, start, stop, identity, nested=nested)
        return root_reading.read(url, branches, start, stop, tree=tree, identity=identity, nested=nested)

    shown = ", ".join(branches[:3]) + (f" and {len(branches) - 3} more" if len(branches) > 3 else "")
    what = f"entries {start} to {'the last' if stop is None else stop} of {shown}"
    return share_offsets(with_retries(url, what, attempt))


def write_table(
    path: str | Path,
    tables: Table | Iterable[Table],
    tree: str = "tree",
    note: Callable[[], str] | None = None,
) -> int:
    """Write tables one after another to one file; return the number of entries.

    All tables must have the columns and types of the first. Each becomes one basket per branch (ROOT) or one
    row group (parquet), so memory does not grow with their number. `note` is called after the last table; its
    text is stored in the file, for `read_note`.
    """
    remaining = iter([tables] if isinstance(tables, Mapping) else tables)
    first = next(remaining, None)
    if not first:
        raise DataError(f"{path}: nothing to write, not even a table without entries")
    num_entries = 0

    def checked() -> Iterator[Table]:
        nonlocal num_entries
        for number, table in enumerate(chain([first], remaining), start=1):
            problem = _difference(table, first)
            if problem:
                raise DataError(f"cannot write {path}: table {number}: {problem}")
            yield table
            num_entries += num_jets(table)

    if _is_parquet(str(path)):
        parquet.write(path, first, checked(), note)
    else:
        root_writing.write(path, first, checked(), note, tree)
    return num_entries


def read_note(url: str) -> str | None:
    """Return the text that `write_table` stored in a file as `note`, or None."""

    def attempt() -> str | None:
        return parquet.read_note(url) if _is_parquet(url) else root_reading.read_note(url)

    return with_retries(url, "the file", attempt)


def _is_parquet(url: str) -> bool:
    return url.endswith((".parquet", ".pq"))


def _difference(table: Table, first: Table) -> str | None:
    """Say how the columns of a table differ from those of the first one; None if they do not."""
    for name in first:
        if name not in table:
            return f"column {name!r} of the first table is missing"
    some_name, num_entries = next(iter(table)), num_jets(table)
    for name, column in table.items():
        if name not in first:
            return f"column {name!r} is not in the first table"
        kind, wanted = _type_name(column), _type_name(first[name])
        if kind != wanted:
            return f"column {name!r} is {kind}, in the first table {wanted}; convert it"
        if len(column) != num_entries:
            return f"column {name!r} has {len(column)} jets, column {some_name!r} has {num_entries}"
    return None


def _type_name(column: Column) -> str:
    """Name a type as FileInfo does: "float32", "float32[]" for jagged, "float32[3]" for fixed arrays."""
    if isinstance(column, Jagged):
        return f"{column.contents.dtype.name}[]"
    return column.dtype.name + "".join(f"[{size}]" for size in column.shape[1:])
