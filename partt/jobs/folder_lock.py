"""Advisory locks (flock) on output folders; a lock ends with its process, however that ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partt.errors import OutputError

_descriptors: set[int] = set()  # forked processes close theirs, so that no lock outlives its job


@contextmanager
def opened_folder(folder: Path, file_name: str | None = None) -> Iterator[int]:
    """Make a folder if needed; yield a descriptor of it, or of a file in it, that can be locked."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file_name is None:
            descriptor = os.open(folder, os.O_RDONLY)
        else:
            descriptor = os.open(folder / file_name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    _descriptors.add(descriptor)
    try:
        yield descriptor
    finally:
        if descriptor in _descriptors:  # not in a forked process
            _descriptors.remove(descriptor)
            os.close(descriptor)


def _close_in_forked_process() -> None:
    while _descriptors:
        with suppress(OSError):
            os.close(_descriptors.pop())


os.register_at_fork(after_in_child=_close_in_forked_process)


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
