"""TensorBoard's event files: numbers by name and step.

TensorBoard's own writer is not used: it needs protobuf, which now and then returns all free memory of the
process to the system (malloc_trim), including what training keeps for its tensors
(`partt.model.cpu.allocator`).

A file is a list of events, each stored as length, checksum of the length, event, checksum of the event. An
event is a protobuf message: a list of fields, each with a key made of its number and kind.
"""

import os
import platform
import struct
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

PREFIX = "events.out.tfevents."  # then the time: TensorBoard reads files in the order of their names
VERSION = b"brain.Event:2"
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # kinds of fields
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7  # fields of an event
_VALUE = 1  # field of a summary, repeated
_TAG, _SIMPLE_VALUE = 1, 2  # fields of a value
_STATUS, _START = 1, 1  # field of a session log: later steps of older files do not count
_CASTAGNOLI = 0x82F63B78  # polynomial of the checksum, reversed


class TensorboardFile:
    """A new event file in a folder; TensorBoard ignores what older files have from `first_step` on."""

    def __init__(self, folder: Path, first_step: int) -> None:
        folder.mkdir(exist_ok=True)
        times = [path.name.removeprefix(PREFIX).partition(".")[0] for path in folder.glob(f"{PREFIX}*")]
        later = [int(text) + 1 for text in times if text.isdecimal()]  # whatever the clocks of machines say
        now = max([int(time.time()), *later])
        self.path = folder / f"{PREFIX}{now}.{platform.node()}.{os.getpid()}"
        self._append(_field(_FILE_VERSION, VERSION))
        self._append(_field(_STEP, first_step), _field(_SESSION_LOG, _field(_STATUS, _START)))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Append the numbers of a step."""
        values = (_field(_TAG, name.encode()) + _float(_SIMPLE_VALUE, each) for name, each in numbers.items())
        summary = b"".join(_field(_VALUE, value) for value in values)
        self._append(_field(_STEP, step), _field(_SUMMARY, summary))

    def _append(self, *fields: bytes) -> None:
        event = _key(_WALL_TIME, _DOUBLE) + struct.pack("<d", time.time()) + b"".join(fields)
        length = struct.pack("<Q", len(event))
        with self.path.open("ab") as file:
            file.write(length + _masked_checksum(length) + event + _masked_checksum(event))


def _field(number: int, content: int | bytes) -> bytes:
    """Return a field: an integer that is not negative, or bytes, such as another message."""
    if isinstance(content, int):
        return _key(number, _VARINT) + _varint(content)
    return _key(number, _BYTES) + _varint(len(content)) + content


def _float(number: int, content: float) -> bytes:
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        single = np.float64(content).astype("<f4")
    return _key(number, _FLOAT) + bytes(single.tobytes())


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(number: int) -> bytes:
    """Return seven bits per byte, the lowest first; the eighth bit says that more bytes follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _masked_checksum(content: bytes) -> bytes:
    """Return CRC-32C, rotated and shifted as the format requires."""
    table, checksum = _checksum_table(), 0xFFFFFFFF
    for byte in content:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    checksum ^= 0xFFFFFFFF
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _checksum_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        checksum = byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (_CASTAGNOLI if checksum & 1 else 0)
        table.append(checksum)
    return tuple(table)
