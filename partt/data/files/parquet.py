"""Parquet files: inspect, read entries, write tables."""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from partt.atomic_files import atomic_path
from partt.data.files.access import file_stamp, filesystem, is_remote, local_path
from partt.data.files.cache import FILE_CACHE
from partt.data.files.info import NOTE, FileInfo, check_identity, check_request, make_chunks
from partt.data.jagged import AnyColumn, Array, Column, Jagged, Nested, Table
from partt.errors import DataError
from partt.regular_files import require_regular

# coffea's reader breaks on texts, but leaves out, with a warning, a column whose form it does not know.
NO_COLUMN_OF_COFFEA = {"form": '{"class": "text"}'}


def inspect(url: str, max_chunk: int) -> FileInfo:
    """Return what a parquet file holds."""
    with _open(url) as file:
        return _info(url, file, max_chunk)


def read(
    url: str,
    branches: Sequence[str],
    start: int,
    stop: int | None,
    identity: str | None,
    *,
    nested: bool = False,
) -> dict[str, AnyColumn]:
    """Return columns for entries from `start` to before `stop`."""
    with _open(url) as file:
        info = _info(url, file, max_chunk=2**62)
        check_identity(info, identity)
        stop = check_request(info, branches, start, stop, nested=nested)
        columns = tuple(dict.fromkeys(branches))
        edges = _row_group_edges(file)
        groups = [i for i in range(file.num_row_groups) if edges[i] < stop and start < edges[i + 1]]
        if not groups:
            table = file.read_row_groups([], columns=list(columns))
        else:
            is_cut = {i: edges[i] < start or stop < edges[i + 1] for i in groups}
            table = pa.concat_tables([_row_group(info, file, i, columns, keep=is_cut[i]) for i in groups])
            table = table.slice(start - edges[groups[0]], stop - start)
    arrays = {name: table[name].combine_chunks() for name in branches}
    for name, array in arrays.items():
        if num_missing := _num_missing(array):
            raise DataError(
                f"{url}: column {name!r} has {num_missing} missing values (nulls) in entries {start} to "
                f"{stop}; fill or drop them when writing the file"
            )
    return {name: _to_column(array) for name, array in arrays.items()}


def write(path: str | Path, first: Table, tables: Iterable[Table], note: Callable[[], str] | None) -> None:
    """Write tables with the columns of `first`, a row group each, and a note."""
    with (
        atomic_path(path) as temporary,
        temporary.open("wb") as sink,
        pa.parquet.ParquetWriter(sink, _to_arrow(first).schema, compression="zstd") as file,
    ):
        for table in tables:
            file.write_table(_to_arrow(table))
        if note is not None:
            file.add_key_value_metadata({NOTE: note()})


def read_note(url: str) -> str | None:
    """Return the note of a file, or None."""
    with _open(url) as file:
        note: bytes | None = (file.metadata.metadata or {}).get(NOTE.encode())
    return None if note is None else note.decode()


def _row_group(
    info: FileInfo, file: pa.parquet.ParquetFile, group: int, columns: tuple[str, ...], *, keep: bool
) -> pa.Table:
    """Return a row group; with `keep` it is decoded once for all chunks that are cut from it."""
    key = (info.url, info.identity, group, columns)
    table = FILE_CACHE.row_groups.get(key)
    if table is None:
        table = file.read_row_group(group, columns=list(columns))
        if keep:
            FILE_CACHE.row_groups.put(key, table, table.nbytes)
    return table


@contextmanager
def _open(url: str) -> Iterator[pa.parquet.ParquetFile]:
    if is_remote(url):
        fs, path = filesystem(url)
        with fs.open(path, "rb") as source, pa.parquet.ParquetFile(source) as file:
            yield file
    else:
        require_regular(local_path(url))
        with open(local_path(url), "rb") as source, pa.parquet.ParquetFile(source) as file:  # noqa: PTH123
            yield file


def _info(url: str, file: pa.parquet.ParquetFile, max_chunk: int) -> FileInfo:
    types = {field.name: _type_name(field.type) for field in file.schema_arrow}
    edges = _row_group_edges(file)
    if edges[-1] != file.metadata.num_rows:
        raise ValueError(f"{file.metadata.num_rows} rows, but {edges[-1]} in its row groups")
    chunks = make_chunks(edges, max_chunk)
    return FileInfo(url, "", file.metadata.num_rows, types, chunks, _identity(url, file))


def _identity(url: str, file: pa.parquet.ParquetFile) -> str:
    """Return the size and version of a file; without a version, the size and a hash of its metadata."""
    size, *versions = file_stamp(url)
    if not versions:
        footer = io.BytesIO()
        file.metadata.write_metadata_file(footer)
        versions = [hashlib.sha256(footer.getvalue()).hexdigest()]
    return "-".join(map(str, (size, *(versions if is_remote(url) else versions[:1]))))


def _row_group_edges(file: pa.parquet.ParquetFile) -> list[int]:
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]


def _is_list(arrow_type: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type) or kinds.is_fixed_size_list(arrow_type)
    )


def _type_name(arrow_type: pa.DataType) -> str:
    if _is_list(arrow_type):
        return f"{_type_name(arrow_type.value_type)}[]"
    if pa.types.is_boolean(arrow_type):
        return "bool"
    is_number = pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type)
    return np.dtype(arrow_type.to_pandas_dtype()).name if is_number else str(arrow_type)


def _num_missing(array: pa.Array) -> int:
    inside = _num_missing(array.flatten()) if _is_list(array.type) else 0
    return int(array.null_count + inside)


def _to_column(array: pa.Array) -> AnyColumn:
    if not _is_list(array.type):
        values: Array = array.to_numpy(zero_copy_only=False)
        return values
    lengths = pa.compute.list_value_length(array).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    inside = _to_column(array.flatten())
    return Nested(inside, offsets) if isinstance(inside, Jagged) else Jagged(inside, offsets)  # type: ignore[arg-type]


def _to_arrow(table: Table) -> pa.Table:
    """Return columns without nulls, which the schema says: readers then have no option types."""
    arrays = {name: _to_array(column) for name, column in table.items()}
    fields = [
        pa.field(name, array.type, nullable=False, metadata=NO_COLUMN_OF_COFFEA if _is_text(array) else None)
        for name, array in arrays.items()
    ]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def _to_array(column: Column) -> pa.Array:
    if isinstance(column, Jagged):
        values = pa.array(column.contents)
        return pa.LargeListArray.from_arrays(column.offsets, values, pa.large_list(_element(values)))
    if column.ndim == 2:
        values, width = pa.array(column.ravel()), column.shape[1]
        return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(_element(values), width))
    return pa.array(column)


def _element(values: pa.Array) -> pa.Field:
    return pa.field("element", values.type, nullable=False)


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type))
