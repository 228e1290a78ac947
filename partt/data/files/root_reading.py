"""ROOT files: read entries of a tree.

Baskets are decoded by `root_baskets`; RNTuples, and branches stored in rare ways, are read by uproot.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import uproot

from partt.data.files.access import file_stamp, is_remote, read_ranges
from partt.data.files.cache import FILE_CACHE
from partt.data.files.info import NOTE, FileInfo, check_identity, check_request, make_chunks
from partt.data.files.root_baskets import (
    BasketLayout,
    Bytes,
    MissingOffsetsError,
    basket_ranges,
    baskets_between,
    decode,
)
from partt.data.files.root_trees import ParsedTree, check_header, open_root, open_tree, parse_tree
from partt.data.jagged import AnyColumn, from_deep_awkward

REFS = "refs"  # of a TRefArray, as uproot gives it


def inspect(url: str, tree: str | None, max_chunk: int) -> FileInfo:
    """Parse a tree, cached or not, and return what it holds."""
    parsed = _parse_and_cache(url, tree)
    return replace(parsed.info, chunks=make_chunks(parsed.boundaries, max_chunk))


def read(
    url: str,
    branches: Sequence[str],
    start: int,
    stop: int | None,
    *,
    tree: str | None,
    identity: str | None,
    nested: bool = False,
) -> dict[str, AnyColumn]:
    """Return columns for entries from `start` to before `stop`."""
    parsed = _cached_tree(url, tree)
    try:
        check_identity(parsed.info, identity)
        return _read(
            parsed, branches, start, check_request(parsed.info, branches, start, stop, nested=nested)
        )
    except Exception:
        FILE_CACHE.trees.discard(url)  # it may be out of date
        raise


def read_note(url: str) -> str | None:
    """Return the note of a file, or None."""
    check_header(url, file_stamp(url)[0])
    with open_root(url) as file:
        classes = file.classnames(recursive=False, cycle=False)
        return str(file[NOTE]) if classes.get(NOTE) == "TObjString" else None


def _parse_and_cache(url: str, tree: str | None) -> ParsedTree:
    parsed = parse_tree(url, tree, FILE_CACHE.tree_shapes)
    FILE_CACHE.trees.put(url, parsed, parsed.memory)
    return parsed


def _cached_tree(url: str, tree: str | None) -> ParsedTree:
    """Return the cached tree if the file has not changed, or parse it."""
    parsed = FILE_CACHE.trees.get(url)
    if parsed is None or tree not in parsed.names or not (is_remote(url) or parsed.stamp == file_stamp(url)):
        return _parse_and_cache(url, tree)
    return parsed


def _read(parsed: ParsedTree, branches: Sequence[str], start: int, stop: int) -> dict[str, AnyColumn]:
    direct = [layout for name in branches if (layout := parsed.layouts[name]) is not None]
    columns: dict[str, AnyColumn]
    columns, rest = _read_baskets(parsed.info.url, direct, start, stop)
    rest += [name for name in branches if parsed.layouts[name] is None]
    if rest:
        columns |= _read_with_uproot(parsed, rest, start, stop)
    for name, column in columns.items():
        if len(column) != stop - start:
            raise ValueError(f"branch {name!r} gave {len(column)} entries instead of {stop - start}")
    return {name: columns[name] for name in branches}


def _read_baskets(
    url: str, layouts: Sequence[BasketLayout], start: int, stop: int
) -> tuple[dict[str, AnyColumn], list[str]]:
    """Return the columns, and the branches whose baskets do not store the sizes of their entries."""
    baskets = [baskets_between(layout, start, stop) for layout in layouts]
    ranges = [basket_ranges(layout, some) for layout, some in zip(layouts, baskets, strict=True)]
    blocks = iter(read_ranges(url, list(chain.from_iterable(ranges))))
    columns: dict[str, AnyColumn] = {}
    rest: list[str] = []
    for layout, some in zip(layouts, baskets, strict=True):
        own = [next(blocks) for _ in some]
        try:
            columns[layout.branch] = decode(layout, some, own, start, stop, decompress=_decompress)
        except MissingOffsetsError:
            rest.append(layout.branch)
    return columns, rest


def _decompress(body: memoryview, num_bytes: int) -> Bytes:
    """Decompress with uproot, which has all of ROOT's algorithms and checks LZ4's checksums."""
    compressed = uproot.source.chunk.Chunk.wrap(None, np.frombuffer(body, np.uint8))
    cursor = uproot.source.cursor.Cursor(0)
    data: Bytes = uproot.compression.decompress(compressed, cursor, {}, len(body), num_bytes).raw_data
    if len(data) != num_bytes:
        raise ValueError(f"decompressed to {len(data)} bytes instead of {num_bytes}")
    return data


def _read_with_uproot(
    parsed: ParsedTree, branches: Sequence[str], start: int, stop: int
) -> dict[str, AnyColumn]:
    limits = {"entry_start": start, "entry_stop": stop}
    columns = {}
    with _opened_tree(parsed) as tree:
        for name in branches:
            try:
                array = tree[name].array(**limits)
                columns[name] = from_deep_awkward(array[REFS] if REFS in array.fields else array)
            except Exception as error:
                raise ValueError(
                    f"corrupt data in branch {name!r}: {type(error).__name__}: {error}"
                ) from error
    return columns


@contextmanager
def _opened_tree(parsed: ParsedTree) -> Iterator[Any]:
    """Yield uproot's tree, from the cache or opened; after a failure it is closed and not kept."""
    tree = FILE_CACHE.take_open_tree(parsed)
    if tree is None:
        tree = open_tree(parsed)
    try:
        yield tree
    except BaseException:
        with suppress(Exception):
            tree.file.close()
        raise
    FILE_CACHE.keep_open_tree(parsed, tree)
