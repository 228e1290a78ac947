"""ROOT files: find the TTree or RNTuple, and parse it once into plain data.

A parsed tree says where the baskets are, so that reading a chunk needs no open file and no parsing.
"""

import gc
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import uproot

from partt.data.files.access import Stamp, file_stamp, is_remote, local_path, read_ranges
from partt.data.files.info import FileInfo
from partt.data.files.root_baskets import BasketLayout
from partt.data.files.root_tree_shapes import Baskets, TreeShapes, shape_of
from partt.errors import DataError

_TTREE_CLASSES = {"TTree", "TNtuple", "TNtupleD"}
_TREE_CLASSES = _TTREE_CLASSES | {"ROOT::RNTuple", "ROOT::Experimental::RNTuple"}
_VECTORS = re.compile(r"(?:std::)?vector<(?:std::)?vector<(\w+)>>")
_NUMBERS = {"float": "float32", "double": "float64", "bool": "bool"} | {
    f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
OBJECT_BYTES = 2000  # of a parsed tree, beside its arrays


@dataclass(frozen=True, eq=False, slots=True)
class PackedLayouts:
    """Layouts of the branches of a tree, in little memory: trees of the same kind share all but two arrays.

    A tree of 45 branches and few baskets takes 4 kB instead of 60, so that the trees of thousands of files
    stay in memory, and no file is parsed twice.
    """

    kinds: "_Kinds"  # shared
    numbers: npt.NDArray[np.int64]  # for each branch: entry_offsets, seeks, sizes
    starts: npt.NDArray[np.int64]  # of each branch in `numbers`, and the end

    def __getitem__(self, branch: str) -> BasketLayout | None:
        """Return where the baskets of a branch are; None: only uproot can read the branch."""
        kind = self.kinds[branch]
        if kind is None:
            return None
        position, dtype, is_jagged, header_bytes = kind
        numbers = self.numbers[self.starts[position] : self.starts[position + 1]]
        last = len(numbers) // 3  # number of baskets
        offsets, seeks = numbers[: last + 1], numbers[last + 1 : 2 * last + 1]
        sizes = numbers[2 * last + 1 :].astype(np.int32)
        return BasketLayout(branch, dtype, is_jagged, header_bytes, offsets, seeks, sizes)

    @property
    def memory(self) -> int:
        """Memory in bytes, without what is shared."""
        return self.numbers.nbytes + self.starts.nbytes


# Of each branch of numbers: position in the packed layouts, type, is jagged, bytes of headers.
_Kinds: TypeAlias = Mapping[str, tuple[int, np.dtype, bool, int] | None]


@dataclass(frozen=True, eq=False)
class _Contents:
    """What a tree holds."""

    types: Mapping[str, str]  # shared
    kinds: _Kinds  # shared
    num_entries: int
    baskets: Mapping[str, Baskets]  # of the branches in `kinds`
    boundaries: Sequence[int]  # entries at which all these branches start a basket or cluster

    def packed(self) -> PackedLayouts:
        """Return where the baskets are, in little memory."""
        parts = [self.baskets[name] for name, kind in self.kinds.items() if kind is not None]
        starts = np.cumsum([0, *(sum(map(len, part)) for part in parts)])
        numbers = np.concatenate([array for part in parts for array in part] or [np.empty(0, np.int64)])
        return PackedLayouts(self.kinds, numbers, starts)


@lru_cache(maxsize=64)
def _shared_dict(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return a dict that all trees with these items share."""
    return dict(items)


@dataclass(frozen=True, eq=False)
class ParsedTree:
    """All that reading a tree takes, without an open file."""

    info: FileInfo  # without chunks
    names: frozenset[str | None]  # that can be used to request the tree; None: it is the only one
    stamp: Stamp
    boundaries: Sequence[int]  # entries at which all branches start a basket or cluster
    layouts: PackedLayouts
    memory: int  # bytes


def parse_tree(url: str, tree: str | None, shapes: TreeShapes) -> ParsedTree:
    """Find a tree in a file and parse it; `shapes` of trees seen before save most of the work."""
    stamp = file_stamp(url)
    check_header(url, stamp[0])
    with _gc_paused(), open_root(url) as file:
        name = _tree_name(url, file, tree)
        contents = _contents(file, name, shapes)
        # The UUID identifies the file; a server's modification time may differ between replicas.
        identity = "-".join(map(str, (file.file.uuid, *stamp[: 1 if is_remote(url) else 2])))
    boundaries = sorted({0, *contents.boundaries, contents.num_entries})
    info = FileInfo(url, name, contents.num_entries, contents.types, (), identity)
    packed = contents.packed()
    memory = packed.memory + OBJECT_BYTES + 40 * len(boundaries)
    return ParsedTree(info, frozenset({tree, name}), stamp, boundaries, packed, memory)


def _contents(file: Any, name: str, shapes: TreeShapes) -> _Contents:
    key = file.key(name)
    if key.fClassName not in _TTREE_CLASSES:
        return _parse_ntuple(file[name])
    shape_key = key.fKeylen, key.fObjlen
    shape = shapes.get(shape_key)
    if shape is not None:
        read = shape.read(key.get_uncompressed_chunk_cursor()[0].raw_data, file.file)
        if read is not None:
            found: _Contents = shape.found
            num_entries, baskets = read
            edges = _common_edges(baskets)
            return replace(found, num_entries=num_entries, baskets=baskets, boundaries=edges)
    tree = file[name]
    contents, branches = _parse_ttree(tree)
    shape = shape_of(tree, branches, contents.baskets, replace(contents, baskets={}, boundaries=()))
    if shape is not None:
        shapes.put(shape_key, shape, shape.memory)
    return contents


@contextmanager
def open_root(url: str) -> Iterator[Any]:
    """Yield uproot's file, closed at the end of the block."""
    try:
        if is_remote(url):
            with uproot.open({url: None}) as file:
                yield file
        else:
            with _open_local(url) as source, uproot.open(source, use_threads=False) as file:
                yield file
    finally:
        _restore_classes()


def open_tree(parsed: ParsedTree) -> Any:
    """Return uproot's tree; its file stays open."""
    url = parsed.info.url
    try:
        return uproot.open({url: None} if is_remote(url) else _open_local(url))[parsed.info.tree]
    finally:
        _restore_classes()


# uproot's own classes of ROOT objects: by version, the version, the class.
_OWN_CLASSES = [
    (kind.known_versions, version, model)
    for kind in uproot.classes.values()
    for version, model in getattr(kind, "known_versions", {}).items()
]


def _restore_classes() -> None:
    """Undo what a damaged file has changed in uproot, where it would spoil all files that follow.

    A wrong version number in a file makes uproot replace its own class by one from the file's description.
    """
    for known, version, model in _OWN_CLASSES:
        known[version] = model


def _open_local(url: str) -> BinaryIO:
    # Unbuffered: uproot reads large pieces; a file object, because uproot splits names at colons.
    return Path(local_path(url)).open("rb", buffering=0)


def check_header(url: str, size: int | None) -> None:
    """Raise an error for a file that is empty, truncated or not ROOT; uproot's would be obscure."""
    if size == 0:
        raise DataError(f"{url}: the file is empty (0 bytes); copy or make it again")
    head = bytes(read_ranges(url, [(0, min(size or 64, 64))])[0])
    if not head.startswith(b"root"):
        is_page = head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml"))
        if is_page:
            raise DataError(
                f"{url}: this is a web page (HTML), not a ROOT file; did the download need a login?"
            )
        raise DataError(f"{url}: this is not a ROOT file (it starts with {head[:8]!r})")
    if size is not None:
        is_big = len(head) >= 20 and struct.unpack_from(">i", head, 4)[0] >= 1_000_000
        end = struct.unpack_from(">q" if is_big else ">i", head, 12)[0] if len(head) >= 20 else 64
        if size < end:
            raise DataError(f"{url}: the file is truncated: {size} of {end} bytes; copy or make it again")


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which takes a fifth of the parsing time and finds nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _tree_name(url: str, file: Any, tree: str | None) -> str:
    """Return the name of the requested tree; without a cycle ("tree;2") uproot takes the newest."""
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
        raise DataError(
            f"{url} has {len(cycles)} trees ({listed}); name one, with --tree or as FILE.root:TREE"
        )
    return next(iter(cycles))


def _parse_ttree(tree: Any) -> tuple[_Contents, dict[str, Any]]:
    """Return what a tree holds, and uproot's branches of numbers."""
    types: dict[str, str] = {}
    kinds: list[tuple[str, tuple[int, np.dtype, bool, int] | None]] = []
    branches: dict[str, Any] = {}
    interpretations: dict[tuple[Any, ...], Any] = {}
    position = 0
    for name, branch in tree.iteritems(recursive=True, full_paths=False):
        if name in types:
            continue
        interpretation = _interpretation(branch, interpretations)
        dtype = _number_dtype(interpretation)
        if dtype is None:
            types[name] = _deep_type(str(branch.typename))
            kinds.append((name, None))
            continue
        is_list = isinstance(interpretation, uproot.AsJagged) or dtype.shape
        types[name] = dtype.base.name + ("[]" if is_list else "")
        branches[name] = branch
        kind = _kind(branch, interpretation)
        kinds.append((name, None if kind is None else (position, *kind)))
        position += kind is not None
    baskets = {name: _baskets(branch) for name, branch in branches.items()}
    contents = _Contents(
        types=_shared_dict(tuple(types.items())),
        kinds=_shared_dict(tuple(kinds)),
        num_entries=int(tree.num_entries),
        baskets=baskets,
        boundaries=_common_edges(baskets),
    )
    return contents, branches


def _baskets(branch: Any) -> Baskets:
    edges = branch.entry_offsets
    seeks, sizes = (branch.member(name)[: len(edges) - 1] for name in ("fBasketSeek", "fBasketBytes"))
    return Baskets(np.asarray(edges, np.int64), seeks.astype(np.int64), sizes.astype(np.int64))


def _common_edges(baskets: Mapping[str, Baskets]) -> list[int]:
    edges = [set(of_branch.edges.tolist()) for of_branch in baskets.values()]
    return sorted(set.intersection(*edges)) if edges else []


def _interpretation(branch: Any, kinds: dict[tuple[Any, ...], Any]) -> Any:
    """Return uproot's interpretation of a branch; plain branches of the same kind share one.

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
    """Return the type of the numbers of a branch, or None if it does not hold numbers."""
    is_jagged = isinstance(interpretation, uproot.AsJagged)
    content = interpretation.content if is_jagged else interpretation
    if not isinstance(content, uproot.interpretation.numerical.Numerical):
        return None
    dtype: np.dtype = content.to_dtype
    return None if dtype.base.kind not in "biuf" or (is_jagged and dtype.shape) else dtype


def _deep_type(typename: str) -> str:
    """Return "float32[][]" for lists of lists, and for references of Delphes; other types unchanged."""
    if typename == "TRefArray[]":
        return "int32[][]"
    inside = _VECTORS.fullmatch(typename.replace(" ", ""))
    return f"{_NUMBERS[inside[1]]}[][]" if inside and inside[1] in _NUMBERS else typename


def _kind(branch: Any, interpretation: Any) -> tuple[np.dtype, bool, int] | None:
    """Return type, is jagged and bytes of headers; None: only uproot can read it (such as Double32_t)."""
    is_jagged = isinstance(interpretation, uproot.AsJagged)
    content = interpretation.content if is_jagged else interpretation
    is_plain = type(content) is uproot.AsDtype and content.from_dtype.newbyteorder("=") == content.to_dtype
    if not is_plain or len(branch.embedded_baskets) > 0:
        return None
    return content.from_dtype, is_jagged, interpretation.header_bytes if is_jagged else 0


def _leaves(name: str, form: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield names and types of a field of an RNTuple; those of a collection are FatJet.pt, FatJet.eta, ..."""
    if form.is_list and depth < 2 and not form.purelist_parameter("__array__"):
        yield from _leaves(name, form.content, depth + 1)
    elif form.is_record and depth:
        for field in form.fields:
            yield from _leaves(f"{name}.{field}", form.content(field), depth)
    else:
        yield name, str(form.type) + "[]" * depth


def _parse_ntuple(ntuple: Any) -> _Contents:
    form = ntuple.to_akform()
    form = form[0] if isinstance(form, tuple) else form
    types = dict(leaf for name in form.fields for leaf in _leaves(name, form.content(name), 0))
    edges = [summary.num_first_entry for summary in ntuple.cluster_summaries]
    return _Contents(
        types=_shared_dict(tuple(types.items())),
        kinds=_shared_dict(tuple((name, None) for name in types)),
        num_entries=int(ntuple.num_entries),
        baskets={},
        boundaries=edges,
    )
