"""The border for local files: only regular files of a bounded size are opened.

A named pipe, a socket or a device could make a reader wait, or read, for ever.
"""

import json
import stat
from pathlib import Path
from typing import Any

from partt.errors import DataError, ParttError

MAX_BYTES = 2**28  # of JSON files, pages and pictures that partt writes


def require_regular(
    path: str | Path, *, max_bytes: int | None = None, error_type: type[ParttError] = DataError
) -> None:
    """Raise an error for a pipe, a socket or a device, and for a file of more than `max_bytes`.

    What does not exist, or is a folder, is left to the reader of the file, which says so itself.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # ValueError: a null character in the name
        return
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise error_type(f"{path}: a pipe, socket or device, not a regular file: copy it into a file first")
    if max_bytes is not None and status.st_size > max_bytes:
        size = f"{status.st_size} bytes, more than the {max_bytes} that are read"
        raise error_type(f"{path}: {size}; is it the right file?")


def read_bounded(path: str | Path, max_bytes: int, *, error_type: type[ParttError] = DataError) -> bytes:
    """Return the contents of a file of at most `max_bytes`; whatever prevents it is one error."""
    require_regular(path, max_bytes=max_bytes, error_type=error_type)
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise error_type(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def has_contents(path: str | Path, contents: bytes) -> bool:
    """Return whether a file has these contents; a larger one is not read."""
    return Path(path).stat().st_size == len(contents) and read_bounded(path, len(contents)) == contents


def read_json(path: str | Path, *, error_type: type[ParttError] = DataError) -> Any:
    """Return the value in a JSON file; whatever prevents it is one error."""
    contents = read_bounded(path, MAX_BYTES, error_type=error_type)
    try:
        return json.loads(contents)
    except (ValueError, RecursionError) as error:
        raise error_type(f"cannot read {path}: {error}") from error
