"""Parquet input with the same calls as ROOT: columns by name, in entry ranges."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from partt.data.file_access import file_stamp, filesystem, is_remote, local_path
from partt.data.file_info import FileInfo, check_identity, check_request, make_chunks
from partt.data.jagged import Array, Column, Jagged


def is_parquet(url: str) -> bool:
    """Tell whether a file is parquet, by its name."""
    return url.endswith((".parquet", ".pq"))


def inspect(url: str, max_chunk: int) -> FileInfo:
    """Return what a parquet file holds."""
    with _open(url) as file:
        return _info(url, file, max_chunk)


def read(
    url: str, branches: Sequence[str], start: int, stop: int | None, identity: str | None
) -> dict[str, Column]:
    """Return columns for entries from `start` to before `stop`."""
    with _open(url) as file:
        info = _info(url, file, max_chunk=2**62)
        check_identity(info, identity)
        stop = check_request(info, branches, start, stop)
        edges = _row_group_edges(file)
        groups = [i for i in range(file.num_row_groups) if edges[i] < stop and start < edges[i + 1]]
        skipped = edges[groups[0]] if groups else 0
        table = file.read_row_groups(groups, columns=list(dict.fromkeys(branches)))
        part = table.slice(start - skipped, stop - start)
        return {name: _to_column(name, part[name].combine_chunks()) for name in branches}


@contextmanager
def _open(url: str) -> Iterator[pa.parquet.ParquetFile]:
    if is_remote(url):
        fs, path = filesystem(url)
        with fs.open(path, "rb") as source, pa.parquet.ParquetFile(source) as file:
            yield file
    else:
        with open(local_path(url), "rb") as source, pa.parquet.ParquetFile(source) as file:  # noqa: PTH123
            yield file


def _info(url: str, file: pa.parquet.ParquetFile, max_chunk: int) -> FileInfo:
    types = {field.name: _type_name(field.type) for field in file.schema_arrow}
    chunks = make_chunks(_row_group_edges(file), max_chunk)
    identity = "-".join(map(str, file_stamp(url)[:2]))
    return FileInfo(url, "", file.metadata.num_rows, types, chunks, identity)


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


def _to_column(name: str, array: pa.Array) -> Column:
    if not _is_list(array.type):
        return _to_numpy(name, array)
    if array.null_count:
        raise ValueError(f"branch {name!r} has missing lists")
    contents = _to_numpy(name, array.flatten())
    lengths = pa.compute.list_value_length(array).to_numpy(zero_copy_only=False)
    return Jagged(contents, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def _to_numpy(name: str, array: pa.Array) -> Array:
    if array.null_count:
        raise ValueError(f"branch {name!r} has missing values")
    values: Array = array.to_numpy(zero_copy_only=False)
    return values
