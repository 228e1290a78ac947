"""Values kept in memory, up to a number of bytes in total; the least recently used go first."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class RecentlyUsed(Generic[_Key, _Value]):
    """A mapping that forgets; the newest value is kept whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._items: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._items)

    def get(self, key: _Key) -> _Value | None:
        """Return a value and keep it longer, or None if it is not there."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key][0]

    def put(self, key: _Key, value: _Value, num_bytes: int) -> None:
        """Keep a value that takes `num_bytes` of memory."""
        self.discard(key)
        self._items[key] = value, num_bytes
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes and len(self._items) > 1:
            self.discard(next(iter(self._items)))

    def discard(self, key: _Key) -> None:
        """Forget a value, if it is there."""
        if key in self._items:
            self.num_bytes -= self._items.pop(key)[1]

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self.num_bytes = 0
