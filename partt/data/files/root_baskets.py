"""Baskets of a TTree -> columns, without the overhead of a general reader for each basket.

A basket is a key, a small header and the (compressed) values of one branch for consecutive entries; if
entries differ in size, the byte offsets of the entries follow the values. Everything is big-endian.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from partt.data.files.access import Range
from partt.data.jagged import Array, Column, Jagged

Bytes = npt.NDArray[np.uint8]
Decompress = Callable[[memoryview, int], Bytes]

_KEY = struct.Struct(">ihiIhh")  # bytes, version, bytes uncompressed, date, bytes of the key, cycle
_BASKET = struct.Struct(">Hiiii")  # version, buffer size, entry size, entries, end of the values


@dataclass(frozen=True, eq=False, slots=True)
class BasketLayout:
    """Where the baskets of a branch are, and how its values are stored."""

    branch: str
    dtype: np.dtype  # as stored; with a shape for fixed arrays
    is_jagged: bool
    header_bytes: int  # before the values of each entry, as in std::vector
    entry_offsets: npt.NDArray[np.int64]  # (number of baskets + 1,)
    seeks: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]


class BasketError(ValueError):
    """The contents of a basket are inconsistent with each other or with the tree."""


class MissingOffsetsError(Exception):
    """A basket does not store the sizes of its entries (the counter branch does)."""


def baskets_between(layout: BasketLayout, start: int, stop: int) -> range:
    """Return the numbers of the baskets that hold entries from `start` to before `stop`."""
    if start >= stop:
        return range(0)
    first = int(np.searchsorted(layout.entry_offsets, start, side="right")) - 1
    last = int(np.searchsorted(layout.entry_offsets, stop, side="left"))
    return range(first, last)


def basket_ranges(layout: BasketLayout, baskets: range) -> list[Range]:
    """Return the byte ranges of baskets in the file."""
    return [(int(layout.seeks[i]), int(layout.seeks[i] + layout.sizes[i])) for i in baskets]


def decode(
    layout: BasketLayout,
    baskets: range,
    blocks: Sequence[memoryview],
    start: int,
    stop: int,
    *,
    decompress: Decompress,
) -> Column:
    """Turn the bytes of baskets into the column of entries from `start` to before `stop`."""
    values: list[Array] = []
    lengths: list[npt.NDArray[np.int64]] = []
    for basket, block in zip(baskets, blocks, strict=True):
        first, last = int(layout.entry_offsets[basket]), int(layout.entry_offsets[basket + 1])
        window = slice(max(start - first, 0), min(stop, last) - first)
        try:
            payload, byte_offsets = _open_basket(block, last - first, decompress)
            if layout.is_jagged:
                part, counts = _jagged_values(layout, payload, byte_offsets, window)
                lengths.append(counts)
            else:
                part = _flat_values(layout, payload, last - first)[window]
        except MissingOffsetsError:
            raise
        except Exception as error:
            raise BasketError(
                f"corrupt data in branch {layout.branch!r}, entries {first} to {last}: "
                f"{type(error).__name__}: {error}"
            ) from error
        values.append(part)
    native = layout.dtype.base.newbyteorder("=")
    contents = _join(values, native, layout.dtype.shape)
    if layout.is_jagged:
        return Jagged(contents, _offsets(lengths))
    if layout.dtype.shape:
        width = int(np.prod(layout.dtype.shape))
        return Jagged(contents.reshape(-1), np.arange(stop - start + 1, dtype=np.int64) * width)
    return contents


def _open_basket(
    block: memoryview, num_entries: int, decompress: Decompress
) -> tuple[Bytes, npt.NDArray[np.int32] | None]:
    """Return the bytes of the values of a basket, and the byte offsets of its entries if it stores them."""
    num_bytes, _, object_bytes, _, key_bytes, _ = _KEY.unpack_from(block)
    if not (_KEY.size + _BASKET.size < key_bytes <= num_bytes <= len(block) and object_bytes >= 0):
        raise ValueError("the basket's key is invalid")
    _, _, _, entries, end = _BASKET.unpack_from(block, key_bytes - _BASKET.size - 1)
    border = end - key_bytes
    if entries != num_entries or not 0 <= border <= object_bytes:
        raise ValueError(f"the basket claims {entries} entries, the tree {num_entries}")
    body = block[key_bytes:num_bytes]
    is_compressed = len(body) != object_bytes
    data = decompress(body, object_bytes) if is_compressed else np.frombuffer(body, np.uint8)
    if border == object_bytes:
        return data, None
    stored = data[border : border + 4 * (entries + 1)].view(">i4")  # a count, then the offsets
    if len(stored) != entries + 1:
        raise ValueError("the entry offsets are cut off")
    byte_offsets = np.empty(entries + 1, dtype=np.int32)
    np.subtract(stored[1:], key_bytes, out=byte_offsets[:-1])
    byte_offsets[-1] = border
    return data[:border], byte_offsets


def _flat_values(layout: BasketLayout, payload: Bytes, num_entries: int) -> Array:
    if len(payload) != num_entries * layout.dtype.itemsize:
        raise ValueError(f"{len(payload)} bytes for {num_entries} entries of {layout.dtype.itemsize} bytes")
    return np.frombuffer(payload, layout.dtype.base).reshape(num_entries, *layout.dtype.shape)


def _jagged_values(
    layout: BasketLayout, payload: Bytes, byte_offsets: npt.NDArray[np.int32] | None, window: slice
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the values of the entries in the window, and how many each entry has."""
    if byte_offsets is None:
        raise MissingOffsetsError
    edges = byte_offsets[window.start : window.stop + 1]
    byte_counts = np.diff(edges)
    byte_counts -= layout.header_bytes
    itemsize = layout.dtype.itemsize
    if byte_offsets[0] != 0 or byte_counts.min() < 0 or edges[-1] > len(payload):
        raise ValueError("the entry offsets do not increase")
    counts = byte_counts // itemsize
    if (counts * itemsize != byte_counts).any():
        raise ValueError(f"an entry is not a whole number of {layout.dtype.newbyteorder('=')} values")
    if layout.header_bytes:
        raw: Bytes | pa.Buffer = _without_headers(payload, edges, layout.header_bytes)
    else:
        raw = payload[edges[0] : edges[-1]]
    return np.frombuffer(raw, layout.dtype, count=int(counts.sum())), counts.astype(np.int64)


def _without_headers(payload: Bytes, edges: npt.NDArray[np.int32], header_bytes: int) -> pa.Buffer:
    """Cut the first bytes off each entry; arrow does it several times faster than a numpy mask."""
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(payload)]
    entries = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, buffers)
    longest = int(np.diff(edges).max())
    return pa.compute.binary_slice(entries, header_bytes, longest).buffers()[2] or pa.py_buffer(b"")


def _join(parts: list[Array], native: np.dtype, shape: tuple[int, ...]) -> Array:
    if not parts:
        return np.empty((0, *shape), native)
    return parts[0].astype(native) if len(parts) == 1 else np.concatenate(parts, dtype=native)


def _offsets(lengths: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(sum(map(len, lengths)) + 1, dtype=np.int64)
    if lengths:
        np.cumsum(lengths[0] if len(lengths) == 1 else np.concatenate(lengths), out=offsets[1:])
    return offsets
