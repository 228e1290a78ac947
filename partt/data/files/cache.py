"""What a process keeps in memory of the files it reads: all the state of `data/files`, in one object.

Files are read chunk by chunk. Parsing a tree or decoding a row group again for each chunk would often take
longer than reading the chunk.
"""

import atexit
import os
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeAlias

from partt.data.files.lru_cache import LRUCache
from partt.data.files.root_tree_shapes import TreeShapes
from partt.data.files.root_trees import ParsedTree

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TREE_BYTES = 64_000_000
MAX_SHAPE_BYTES = 16_000_000
MAX_ROW_GROUP_BYTES = 256_000_000
MAX_OPEN_TREES = 4

RowGroupKey: TypeAlias = tuple[str, str, int, tuple[str, ...]]  # URL, identity, number, columns


class FileCache:
    """Parsed trees, shapes of trees, open trees and decoded row groups, each up to a limit.

    `trees` by URL, without open files: at most MAX_TREE_BYTES, the least recently used leave first. A tree
    also leaves when reading its file fails, and is parsed again when a local file has changed.

    `tree_shapes` of trees that uproot has parsed, at most MAX_SHAPE_BYTES (or one).

    `row_groups` of parquet files that are cut into several chunks: at most MAX_ROW_GROUP_BYTES (or one), the
    least recently used leave first. The key contains the identity of the file, which changes with the file.

    `open_trees` of uproot, with open files, for RNTuples and branches that only uproot can read: at most
    MAX_OPEN_TREES, the least recently used is closed first. A tree is closed when reading it fails. The key
    contains the process id: a forked process opens its own files.
    """

    def __init__(self) -> None:
        self.trees: LRUCache[str, ParsedTree] = LRUCache(MAX_TREE_BYTES)
        self.tree_shapes = TreeShapes(MAX_SHAPE_BYTES)
        self.row_groups: LRUCache[RowGroupKey, pa.Table] = LRUCache(MAX_ROW_GROUP_BYTES)
        self.open_trees: OrderedDict[tuple[Hashable, ...], Any] = OrderedDict()

    def take_open_tree(self, parsed: ParsedTree) -> Any | None:
        """Return uproot's tree and remove it, or return None if it is not open."""
        return self.open_trees.pop(_open_tree_key(parsed), None)

    def keep_open_tree(self, parsed: ParsedTree, tree: Any) -> None:
        """Keep uproot's tree open; close the least recently used ones beyond MAX_OPEN_TREES."""
        self.open_trees[_open_tree_key(parsed)] = tree
        while len(self.open_trees) > MAX_OPEN_TREES:
            _, oldest = self.open_trees.popitem(last=False)
            oldest.file.close()

    def close_open_trees(self) -> None:
        """Close the trees that this process has opened."""
        for key in [key for key in self.open_trees if key[0] == os.getpid()]:
            self.open_trees.pop(key).file.close()


def _open_tree_key(parsed: ParsedTree) -> tuple[Hashable, ...]:
    return os.getpid(), parsed.info.url, parsed.info.tree, parsed.stamp


FILE_CACHE = FileCache()  # the one of this process
# uproot's files wait for their threads when they are deleted: for ever, while Python 3.13 shuts down
atexit.register(FILE_CACHE.close_open_trees)
