"""The only module that opens or writes ROOT: TTree and RNTuple, local or remote; parquet the same way.

Trees are parsed by uproot, once; what is kept is plain data (where the baskets are), so that reading a
chunk needs no open file and no parsing. RNTuples, and branches stored in rare ways, are read by uproot.
"""

import gc
import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

from partt.atomic_files import atomic_path
from partt.data.files import parquet_files
from partt.data.files.access import (
    AuthenticationError,
    Stamp,
    file_stamp,
    is_remote,
    local_path,
    read_ranges,
    read_reporting,
)
from partt.data.files.info import FileInfo, check_identity, check_request, make_chunks, share_offsets
from partt.data.files.recently_used import RecentlyUsed
from partt.data.files.root_baskets import (
    BasketLayout,
    Bytes,
    MissingOffsetsError,
    basket_ranges,
    baskets_between,
    decode,
)
from partt.data.jagged import Column, Jagged, Table, from_awkward, num_jets, to_awkward
from partt.errors import DataError

__all__ = ["AuthenticationError", "FileInfo", "inspect_file", "read_columns", "read_note", "write_tree"]

MAX_CHUNK = 8192  # entries; ten classes of chunks that are shuffled together are then some 400 MB
MAX_KEPT_BYTES = 64_000_000  # of all trees that a process remembers, one for each file
MAX_KEPT_NTUPLES = 4
NOTE = "partt"  # the object, or the key, of a file's note
_TREE_CLASSES = {"TTree", "TNtuple", "TNtupleD", "ROOT::RNTuple", "ROOT::Experimental::RNTuple"}


@dataclass(frozen=True, eq=False)
class _TreeMap:
    """What reading a tree takes, without an open file."""

    info: FileInfo
    names: frozenset[str | None]  # what the tree may be asked for as; None: the only one
    stamp: Stamp
    boundaries: Sequence[int]  # entries at which all branches start a basket, cluster
    layouts: Mapping[str, BasketLayout | None]  # None: only uproot can read the branch
    memory: int  # bytes


_tree_maps: RecentlyUsed[str, _TreeMap] = RecentlyUsed(MAX_KEPT_BYTES)
_open_trees: OrderedDict[tuple[int, str, str, Stamp], Any] = OrderedDict()


def inspect_file(url: str, tree: str | None = None, max_chunk: int = MAX_CHUNK) -> FileInfo:
    """Return what a file holds; the tree needs a name only if there are several."""
    if parquet_files.is_parquet(url):
        return read_reporting(url, "the file", lambda: parquet_files.inspect(url, max_chunk))
    found = read_reporting(url, "the file", lambda: _parse(url, tree))
    _tree_maps.put(url, found, found.memory)
    return FileInfo(**{**vars(found.info), "chunks": make_chunks(found.boundaries, max_chunk)})


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

    Jagged columns of equal lengths share one offsets array. With `identity`, a file that is not the one
    that was inspected is an error.
    """
    what = f"entries {start} to {'the last' if stop is None else stop} of {_shortened(branches)}"
    if parquet_files.is_parquet(url):
        columns = read_reporting(url, what, lambda: parquet_files.read(url, branches, start, stop, identity))
        return share_offsets(columns)

    def attempt() -> dict[str, Column]:
        found = _known_tree(url, tree)
        try:
            check_identity(found.info, identity)
            return _read(found, branches, start, check_request(found.info, branches, start, stop))
        except Exception:
            _tree_maps.discard(url)  # what was remembered may be out of date
            raise

    return share_offsets(read_reporting(url, what, attempt))


def write_tree(
    path: str | Path,
    tables: Table | Iterable[Table],
    tree: str = "tree",
    note: Callable[[], str] | None = None,
) -> int:
    """Write tables one after another as one TTree; return the number of entries.

    Each table becomes one basket per branch, so memory stays flat. Jagged columns with a common prefix
    and equal lengths in the first table (part_px, part_py) share one counter (npart). All tables must have
    the columns and types of the first. `note`: gives a text to keep in the file, when all tables are written.
    """
    remaining = iter([tables] if isinstance(tables, Mapping) else tables)
    first = next(remaining, None)
    if not first:
        raise DataError(f"{path}: nothing to write, not even a table without entries")
    records = _records(first)
    num_entries = 0
    with (
        atomic_path(path) as temporary,
        temporary.open("w+b") as sink,
        uproot.recreate(sink, compression=uproot.LZ4(4)) as file,
    ):
        types = {name: array.type.content for name, array in _to_branches(first, records).items()}
        out = file.mktree(tree, types, field_name=_field_name, counter_name=lambda name: f"n{name}")
        for number, table in enumerate(chain([first], remaining), start=1):
            fault = _fault(table, first, records)
            if fault:
                raise DataError(f"cannot write {path}: table {number}: {fault}")
            out.extend(_to_branches(table, records))
            num_entries += num_jets(table)
        if note is not None:
            file[NOTE] = note()
    return num_entries


def read_note(url: str) -> str | None:
    """Return the text that was kept in a file when it was written; None if there is none."""

    def attempt() -> str | None:
        if parquet_files.is_parquet(url):
            return parquet_files.read_note(url, NOTE)
        _check_header(url, file_stamp(url)[0])
        with _open_file(url) as file:
            return str(file[NOTE]) if file.classname_of(NOTE) == "TObjString" else None

    return read_reporting(url, "the file", attempt)


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# --- parsing ---------------------------------------------------------------------------------------


def _known_tree(url: str, tree: str | None) -> _TreeMap:
    """Return the remembered map of a tree if the file did not change, or parse it."""
    found = _tree_maps.get(url)
    if found is None or tree not in found.names or not (is_remote(url) or found.stamp == file_stamp(url)):
        found = _parse(url, tree)
        _tree_maps.put(url, found, found.memory)
    return found


def _parse(url: str, tree: str | None) -> _TreeMap:
    stamp = file_stamp(url)
    _check_header(url, stamp[0])
    with _gc_paused(), _open_file(url) as file:
        name = _tree_name(url, file, tree)
        opened = file[name]
        layouts: dict[str, BasketLayout | None]
        if isinstance(opened, uproot.behaviors.TTree.TTree):
            types, layouts, boundaries = _parse_ttree(opened)
        else:
            types, layouts, boundaries = _parse_ntuple(opened)
        num_entries = int(opened.num_entries)
        # The UUID tells files apart; a server's time may not be the same for each replica of a file.
        identity = "-".join(map(str, (file.file.uuid, *stamp[: 1 if is_remote(url) else 2])))
    boundaries = sorted({0, *boundaries, num_entries})
    info = FileInfo(url, name, num_entries, types, (), identity)
    memory = sum(layout.memory for layout in layouts.values() if layout is not None)
    return _TreeMap(info, frozenset({tree, name}), stamp, boundaries, layouts, memory)


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which takes a fifth of the time of parsing and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _open_file(url: str) -> Iterator[Any]:
    if is_remote(url):
        with uproot.open({url: None}) as file:
            yield file
    else:
        # Unbuffered: uproot reads large pieces; a file object, because uproot splits names at colons.
        with Path(local_path(url)).open("rb", buffering=0) as source, uproot.open(source) as file:
            yield file


def _check_header(url: str, size: int | None) -> None:
    """Tell an empty, a foreign or a truncated file at once, where uproot's message would not."""
    if size == 0:
        raise DataError(f"{url}: the file is empty (0 bytes); copy or make it again")
    head = bytes(read_ranges(url, [(0, min(size or 64, 64))])[0])
    if not head.startswith(b"root"):
        is_page = head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml"))
        kind = (
            "a web page (HTML), not a ROOT file; did the download need a login?"
            if is_page
            else (f"not a ROOT file (it starts with {head[:8]!r})")
        )
        raise DataError(f"{url}: this is {kind}")
    if size is not None:
        is_big = len(head) >= 20 and struct.unpack_from(">i", head, 4)[0] >= 1_000_000
        end = struct.unpack_from(">q" if is_big else ">i", head, 12)[0] if len(head) >= 20 else 64
        if size < end:
            raise DataError(f"{url}: the file is truncated: {size} of {end} bytes; copy or make it again")


def _tree_name(url: str, file: Any, tree: str | None) -> str:
    """Find the tree that is asked for; without a cycle ("tree;2") uproot takes the newest."""
    cycles: dict[str, list[str]] = {}
    for key, kind in file.classnames(recursive=True).items():
        if kind in _TREE_CLASSES:
            name, _, number = key.rpartition(";")
            cycles.setdefault(name, []).append(number)
    listed = ", ".join(sorted(cycles)) or "none"
    if tree is not None:
        wanted, _, cycle = tree.strip("/").partition(";")
        if wanted not in cycles:
            raise DataError(f"{url} has no tree {wanted!r}; trees in the file: {listed}")
        if not cycle:
            return wanted
        if cycle not in cycles[wanted]:
            known = ", ".join(f"{wanted};{number}" for number in sorted(cycles[wanted], key=int))
            raise DataError(f"{url} has no tree '{wanted};{cycle}'; cycles in the file: {known}")
        return f"{wanted};{cycle}"
    if not cycles:
        objects = sorted(file.keys(recursive=True, cycle=False))
        raise DataError(f"{url} has no tree; objects in the file: {', '.join(objects[:8]) or 'none'}")
    if len(cycles) > 1:
        raise DataError(f"{url} has {len(cycles)} trees ({listed}); set `treename` in the data config to one")
    return next(iter(cycles))


def _parse_ttree(tree: Any) -> tuple[dict[str, str], dict[str, BasketLayout | None], list[int]]:
    types: dict[str, str] = {}
    layouts: dict[str, BasketLayout | None] = {}
    common: set[int] | None = None
    kinds: dict[tuple[Any, ...], Any] = {}
    for name, branch in tree.iteritems(recursive=True, full_paths=False):
        if name in types:
            continue
        interpretation = _interpretation(branch, kinds)
        dtype = _number_dtype(interpretation)
        if dtype is None:
            types[name] = str(branch.typename)
            continue
        is_list = isinstance(interpretation, uproot.AsJagged) or dtype.shape
        types[name] = dtype.base.name + ("[]" if is_list else "")
        edges = branch.entry_offsets
        layouts[name] = _layout(name, branch, interpretation, edges)
        common = set(edges) if common is None else common.intersection(edges)
    return types, layouts, sorted(common or ())


def _interpretation(branch: Any, kinds: dict[tuple[Any, ...], Any]) -> Any:
    """Return uproot's interpretation of a branch; of plain branches it is worked out once for each kind.

    That saves an eighth of the time of opening a file with fifty branches.
    """
    leaves = branch.member("fLeaves")
    if branch.classname != "TBranch" or len(leaves) != 1:
        return branch.interpretation
    leaf = leaves[0]
    counter = leaf.member("fLeafCount")
    dimensions = leaf.member("fTitle").removeprefix(leaf.member("fName"))
    if counter is not None:
        dimensions = dimensions.replace(counter.member("fName"), "n")
    kind = (leaf.classname, leaf.member("fLen"), leaf.member("fIsUnsigned"), counter is None, dimensions)
    if kind not in kinds:
        kinds[kind] = branch.interpretation
    return kinds[kind]


def _number_dtype(interpretation: Any) -> np.dtype | None:
    """Return the type of the numbers of a branch, or None if they are something else."""
    is_jagged = isinstance(interpretation, uproot.AsJagged)
    content = interpretation.content if is_jagged else interpretation
    if not isinstance(content, uproot.interpretation.numerical.Numerical):
        return None
    dtype: np.dtype = content.to_dtype
    return None if dtype.base.kind not in "biuf" or (is_jagged and dtype.shape) else dtype


def _layout(name: str, branch: Any, interpretation: Any, edges: list[int]) -> BasketLayout | None:
    """Return where the baskets are, or None for storage that is left to uproot (such as Double32_t)."""
    is_jagged = isinstance(interpretation, uproot.AsJagged)
    content = interpretation.content if is_jagged else interpretation
    is_plain = type(content) is uproot.AsDtype and content.from_dtype.newbyteorder("=") == content.to_dtype
    if not is_plain or len(branch.embedded_baskets) > 0:
        return None
    num_baskets = len(edges) - 1
    return BasketLayout(
        branch=name,
        dtype=content.from_dtype,
        is_jagged=is_jagged,
        header_bytes=interpretation.header_bytes if is_jagged else 0,
        entry_offsets=np.asarray(edges, dtype=np.int64),
        seeks=branch.member("fBasketSeek")[:num_baskets].astype(np.int64),
        sizes=branch.member("fBasketBytes")[:num_baskets].astype(np.int32),
    )


def _parse_ntuple(ntuple: Any) -> tuple[dict[str, str], dict[str, BasketLayout | None], list[int]]:
    form = ntuple.to_akform()
    form = form[0] if isinstance(form, tuple) else form
    types = {name: str(form.content(name).type) for name in form.fields}
    for name, text in types.items():
        # awkward writes lists as "var * float32" and fixed arrays as "3 * float32"
        dimension, star, number = text.partition(" * ")
        if star and (dimension == "var" or dimension.isdecimal()):
            types[name] = f"{number}[]"
    edges = [summary.num_first_entry for summary in ntuple.cluster_summaries]
    return types, dict.fromkeys(types), edges


# --- reading ---------------------------------------------------------------------------------------


def _read(found: _TreeMap, branches: Sequence[str], start: int, stop: int) -> dict[str, Column]:
    direct = [layout for name in branches if (layout := found.layouts[name]) is not None]
    columns, rest = _read_baskets(found.info.url, direct, start, stop)
    rest += [name for name in branches if found.layouts[name] is None]
    if rest:
        columns |= _read_with_uproot(found, rest, start, stop)
    for name, column in columns.items():
        if len(column) != stop - start:
            raise ValueError(f"branch {name!r} gave {len(column)} entries instead of {stop - start}")
    return {name: columns[name] for name in branches}


def _read_baskets(
    url: str, layouts: Sequence[BasketLayout], start: int, stop: int
) -> tuple[dict[str, Column], list[str]]:
    """Return the columns, and the branches whose baskets cannot be read alone."""
    baskets = [baskets_between(layout, start, stop) for layout in layouts]
    ranges = [basket_ranges(layout, some) for layout, some in zip(layouts, baskets, strict=True)]
    blocks = iter(read_ranges(url, list(chain.from_iterable(ranges))))
    columns: dict[str, Column] = {}
    rest: list[str] = []
    for layout, some in zip(layouts, baskets, strict=True):
        own = [next(blocks) for _ in some]
        try:
            columns[layout.branch] = decode(layout, some, own, start, stop, decompress=_decompress)
        except MissingOffsetsError:
            rest.append(layout.branch)
    return columns, rest


def _decompress(body: memoryview, num_bytes: int) -> Bytes:
    """Decompress with uproot, which knows ROOT's algorithms and checks LZ4's checksums."""
    packed = uproot.source.chunk.Chunk.wrap(None, np.frombuffer(body, np.uint8))
    cursor = uproot.source.cursor.Cursor(0)
    unpacked: Bytes = uproot.compression.decompress(packed, cursor, {}, len(body), num_bytes).raw_data
    if len(unpacked) != num_bytes:
        raise ValueError(f"decompressed to {len(unpacked)} bytes instead of {num_bytes}")
    return unpacked


def _read_with_uproot(found: _TreeMap, branches: Sequence[str], start: int, stop: int) -> dict[str, Column]:
    limits = {"entry_start": start, "entry_stop": stop}
    columns = {}
    with _open_tree(found) as tree:
        for name in branches:
            try:
                columns[name] = from_awkward(tree[name].array(**limits))
            except Exception as error:
                raise ValueError(
                    f"corrupt data in branch {name!r}: {type(error).__name__}: {error}"
                ) from error
    return columns


@contextmanager
def _open_tree(found: _TreeMap) -> Iterator[Any]:
    """Give uproot's tree; a few stay open, unless reading fails, and a forked process opens its own."""
    key = (os.getpid(), found.info.url, found.info.tree, found.stamp)
    tree = _open_trees.pop(key, None)
    if tree is None:
        url = found.info.url
        source = {url: None} if is_remote(url) else Path(local_path(url)).open("rb", buffering=0)  # noqa: SIM115
        tree = uproot.open(source)[found.info.tree]
    try:
        yield tree
    except BaseException:
        with suppress(Exception):
            tree.file.close()
        raise
    _open_trees[key] = tree
    while len(_open_trees) > MAX_KEPT_NTUPLES:
        _, oldest = _open_trees.popitem(last=False)
        oldest.file.close()


# --- writing ---------------------------------------------------------------------------------------


def _records(table: Table) -> dict[str, list[str]]:
    """Find jagged columns that can share a counter: prefix -> the rest of their names."""
    groups: dict[str, list[str]] = {}
    for name, column in table.items():
        prefix, underscore, rest = name.partition("_")
        if isinstance(column, Jagged) and prefix and underscore and rest:
            groups.setdefault(prefix, []).append(rest)

    def is_uniform(prefix: str, rests: list[str]) -> bool:
        offsets = [table[f"{prefix}_{rest}"].offsets for rest in rests]  # type: ignore[union-attr]
        return all(other is offsets[0] or np.array_equal(other, offsets[0]) for other in offsets)

    return {
        prefix: rests
        for prefix, rests in groups.items()
        if is_uniform(prefix, rests) and prefix not in table and f"n{prefix}" not in table
    }


def _fault(table: Table, first: Table, records: Mapping[str, list[str]]) -> str | None:
    """Say why a table cannot follow the first one, which column is to blame, or return None."""
    for name in first:
        if name not in table:
            return f"column {name!r} of the first table is missing"
    some_name, num_entries = next(iter(table)), num_jets(table)
    for name, column in table.items():
        if name not in first:
            return f"column {name!r} is not in the first table"
        kind, wanted = _column_type(column), _column_type(first[name])
        if kind != wanted:
            return f"column {name!r} is {kind}, in the first table {wanted}; convert it"
        if len(column) != num_entries:
            return f"column {name!r} has {len(column)} jets, column {some_name!r} has {num_entries}"
    for prefix, rests in records.items():
        names = [f"{prefix}_{rest}" for rest in rests]
        lengths = [table[name].lengths for name in names]  # type: ignore[union-attr]
        for name, other in zip(names, lengths, strict=True):
            if not np.array_equal(other, lengths[0]):
                jet = int(np.flatnonzero(other != lengths[0])[0])
                return (
                    f"columns {names[0]!r} and {name!r} share a counter, "
                    f"but jet {jet} has {lengths[0][jet]} and {other[jet]} values"
                )
    return None


def _column_type(column: Column) -> str:
    """Name a type as FileInfo does: "float32", "float32[]" for jagged, "float32[3]" for fixed arrays."""
    if isinstance(column, Jagged):
        return f"{column.contents.dtype.name}[]"
    return column.dtype.name + "".join(f"[{size}]" for size in column.shape[1:])


def _to_branches(table: Table, records: Mapping[str, list[str]]) -> dict[str, ak.Array]:
    """Return what uproot writes: columns of a record zipped, the others as they are."""
    grouped = {f"{prefix}_{rest}" for prefix, rests in records.items() for rest in rests}
    arrays = {}
    for prefix, rests in records.items():
        columns = {rest: to_awkward(table[f"{prefix}_{rest}"]) for rest in rests}
        arrays[prefix] = ak.zip(columns)
    return arrays | {name: to_awkward(column) for name, column in table.items() if name not in grouped}


def _field_name(outer: str, inner: str) -> str:
    return f"{outer}_{inner}" if outer else inner
