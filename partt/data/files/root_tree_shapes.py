"""Trees of equal shape: where a TTree has its numbers, so that the next tree like it need not be parsed.

The trees of one production differ in numbers of entries and bytes, and in the places of their baskets; all
other bytes are the same. So the numbers of the next tree stand where those of the first one were, which
uproot has parsed, and reading them takes a tenth of the time of parsing.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import uproot

from partt.data.files.access import Range
from partt.data.files.lru_cache import LRUCache

Bytes: TypeAlias = npt.NDArray[np.uint8]

_BYTES = struct.Struct(">I")  # of an object, with a bit that marks it as a number of bytes
_MARK = 0x40000000
_KEY_BYTES = struct.Struct(">14xh")
# Members of TTree, version 20, and TBranch, version 13, that stand side by side:
_TREE = struct.Struct(">qqqqqdiiiiIqqqqqq")  # fEntries and four sums; ...; fAutoSave, fAutoFlush, fEstimate
_PLACE = struct.Struct(">iiiq")  # fBasketSize, fEntryOffsetLen, fWriteBasket, fEntryNumber
_SUMS = struct.Struct(">qqqq")  # fEntries, fFirstEntry, fTotBytes, fZipBytes


class Baskets(NamedTuple):
    """Where the baskets of a branch are."""

    edges: npt.NDArray[np.int64]  # entries at which the baskets start, and at which the last one ends
    seeks: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


class _Places(NamedTuple):
    """Positions of the numbers of a branch in the bytes of its tree."""

    place: int
    sums: int
    sizes: int
    edges: int
    seeks: int
    max_baskets: int

    def read(self, data: Bytes) -> Baskets | None:
        """Return the baskets of a branch, or None in rare cases, which are left to uproot."""
        num_baskets = _PLACE.unpack_from(data.data, self.place)[2]
        num_entries = _SUMS.unpack_from(data.data, self.sums)[0]
        if not 0 <= num_baskets < self.max_baskets:
            return None
        edges = np.frombuffer(data, ">i8", num_baskets + 1, self.edges)
        seeks = np.frombuffer(data, ">i8", num_baskets, self.seeks)
        sizes = np.frombuffer(data, ">i4", num_baskets, self.sizes)
        if edges[-1] != num_entries or not seeks.all() or (num_baskets == 0 and num_entries != 0):
            return None
        return Baskets(edges.astype(np.int64), seeks.astype(np.int64), sizes.astype(np.int64))

    @property
    def numbers(self) -> Iterator[Range]:
        """Where bytes may differ."""
        yield self.place, self.place + _PLACE.size
        yield self.sums, self.sums + _SUMS.size
        yield self.sizes, self.sizes + 4 * self.max_baskets
        yield self.edges, self.edges + 8 * self.max_baskets
        yield self.seeks, self.seeks + 8 * self.max_baskets


@dataclass(frozen=True, eq=False)
class TreeShape:
    """The bytes of a tree that uproot has parsed, where its numbers are, and what else was found in it."""

    blank: bytes  # with zeros for the numbers that may differ
    numbers: npt.NDArray[np.int64]  # positions of their bytes
    num_entries: int  # its position
    branches: Mapping[str, _Places]
    streamers: bytes | None  # of the file, if the types of the branches may depend on them
    found: Any

    @property
    def memory(self) -> int:
        """Memory in bytes."""
        return len(self.blank) + self.numbers.nbytes + len(self.streamers or b"")

    def read(self, data: Bytes, file: Any) -> tuple[int, dict[str, Baskets]] | None:
        """Return the number of entries and the baskets of another tree; None if it has to be parsed."""
        if len(data) != len(self.blank):
            return None
        blank = data.copy()
        blank[self.numbers] = 0
        if blank.tobytes() != self.blank:
            return None
        if self.streamers is not None and self.streamers != _streamers_of(file):
            return None
        baskets = {}
        for name, places in self.branches.items():
            of_branch = places.read(data)
            if of_branch is None:
                return None
            baskets[name] = of_branch
        return int(_TREE.unpack_from(data.data, self.num_entries)[0]), baskets


TreeShapes: TypeAlias = LRUCache[tuple[int, int], TreeShape]  # by bytes of the key and of the tree


def shape_of(
    tree: Any, branches: Mapping[str, Any], baskets: Mapping[str, Baskets], found: Any
) -> TreeShape | None:
    """Return the shape of uproot's tree, with the places of some branches.

    There is none (None) for classes of old ROOT versions, and where the shape would give other baskets than
    uproot.
    """
    try:
        if type(tree) is not uproot.models.TTree.Model_TTree_v20 or not _all_known(tree):
            return None
        data = np.array(tree.chunk.raw_data)
        numbers = _number_bytes(tree, data)
        shape = TreeShape(
            blank=np.where(numbers, 0, data).astype(np.uint8).tobytes(),
            numbers=np.flatnonzero(numbers),
            num_entries=_end(tree.bases[-1]),
            branches={name: _places(branch, data) for name, branch in branches.items()},
            streamers=None if all(map(_is_plain, branches.values())) else _streamers_of(tree.file),
            found=found,
        )
        return shape if _is_exact(shape, data, tree, baskets) else None
    except (AttributeError, IndexError, TypeError, ValueError, struct.error):  # only uproot understands it
        return None


def _number_bytes(tree: Any, data: Bytes) -> npt.NDArray[np.bool_]:
    """Return which bytes of a tree belong to numbers that may differ."""
    numbers = np.zeros(len(data), dtype=bool)
    fields = _end(tree.bases[-1])
    numbers[fields : fields + 5 * 8] = True
    numbers[fields + _TREE.size - 3 * 8 : fields + _TREE.size] = True
    for branch in tree.itervalues(recursive=True):
        for start, stop in (*_places(branch, data).numbers, *_leaf_numbers(branch)):
            numbers[start:stop] = True
    return numbers


def _streamers_of(file: Any) -> bytes:
    """Return the description of classes in a ROOT file, as stored, without its key."""
    start = file.fSeekInfo
    record = bytes(file.source.chunk(start, start + file.fNbytesInfo).raw_data)
    return record[_KEY_BYTES.unpack_from(record)[0] :]


def _is_exact(shape: TreeShape, data: Bytes, tree: Any, expected: Mapping[str, Baskets]) -> bool:
    """Tell whether a shape gives what uproot found in the tree that it was made from."""
    read = shape.read(data, tree.file)
    if read is None or read[0] != tree.num_entries or read[1].keys() != expected.keys():
        return False
    return all(
        np.array_equal(left, right)
        for name, baskets in read[1].items()
        for left, right in zip(baskets, expected[name], strict=True)
    )


def _all_known(tree: Any) -> bool:
    known = uproot.models.TBranch.Model_TBranch_v13
    return all(type(_base(branch)) is known for branch in tree.itervalues(recursive=True))


def _base(branch: Any) -> Any:
    """Return the part of a branch that is a TBranch."""
    return branch if _is_plain(branch) else branch.bases[0]


def _is_plain(branch: Any) -> bool:
    return bool(branch.classname == "TBranch")


def _places(branch: Any, data: Bytes) -> _Places:
    base = _base(branch)
    max_baskets = int(base.member("fMaxBaskets"))
    place = base.member("fIOFeatures").cursor.index - _PLACE.size
    sums = base.member("fBranches").cursor.index - _SUMS.size
    # After the list of baskets, three arrays follow, each after a byte.
    list_start = base._cursor_baskets.index  # noqa: SLF001 - uproot skips the list, and so has no object
    sizes = list_start + (_BYTES.unpack_from(data.data, list_start)[0] & ~_MARK) + _BYTES.size + 1
    edges = sizes + 4 * max_baskets + 1
    return _Places(place, sums, sizes, edges, edges + 8 * max_baskets + 1, max_baskets)


def _leaf_numbers(branch: Any) -> Iterator[Range]:
    """Yield where the smallest and largest values stand; leaves of counters have them."""
    for leaf in branch.member("fLeaves"):
        if set(leaf.members) == {"fMinimum", "fMaximum"}:
            yield _end(leaf.bases[0]), _end(leaf)


def _end(model: Any) -> int:
    return int(model.cursor.index + model.num_bytes)
