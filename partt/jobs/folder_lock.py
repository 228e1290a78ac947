"""Advisory locks (flock) on output folders; a lock ends with its process, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partt.errors import OutputError


@contextmanager
def opened_folder(folder: Path, file_name: str | None = None) -> Iterator[int]:
    """Make a folder if needed; yield a descriptor of it, or of a file in it, that can be locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file_name is None:
            descriptor = os.open(folder, os.O_RDONLY)
        else:
            descriptor = os.open(folder / file_name, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, if_unsupported: bool) -> bool:
    """Take an exclusive lock without waiting; return whether this process holds it.

    `if_unsupported` is the answer on a file system without locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return if_unsupported
    return True


def wait_for_lock(descriptor: int, *, shared: bool = False) -> None:
    """Wait for an exclusive or a shared lock; on a file system without locks, go ahead without one."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
