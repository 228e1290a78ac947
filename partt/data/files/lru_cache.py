"""LRU cache bounded by bytes."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class LRUCache(Generic[_Key, _Value]):
    """LRU cache bounded by bytes; the newest value is kept whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._items: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._items)

    def get(self, key: _Key) -> _Value | None:
        """Return a value and mark it as used, or return None."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: _Key, value: _Value, num_bytes: int) -> None:
        """Add a value that takes `num_bytes` of memory; the least recently used ones make room for it."""
        self.discard(key)
        self._items[key] = value, num_bytes
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes and len(self._items) > 1:
            self.discard(next(iter(self._items)))

    def discard(self, key: _Key) -> None:
        """Remove a value if it is cached."""
        if key in self._items:
            self.num_bytes -= self._items.pop(key)[1]

    def clear(self) -> None:
        """Remove all values."""
        self._items.clear()
        self.num_bytes = 0
