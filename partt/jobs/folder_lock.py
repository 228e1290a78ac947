"""Advisory locks (flock) on output folders; a lock ends with its process, however that ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partt.errors import OutputError

PATIENCE = 20.0  # seconds; only `partt simulate` and `partt download` keep an exclusive lock for long
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


def wait_for_lock(descriptor: int, folder: Path, *, shared: bool = False) -> None:
    """Wait for an exclusive or a shared lock, but not for ever.

    On a file system without locks, go ahead without one.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    end = time.monotonic() + PATIENCE
    with suppress(OSError):
        while time.monotonic() < end:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            time.sleep(0.05)
        raise OutputError(
            f"another process, like `partt simulate` or `partt download`, is writing to {folder}; wait for "
            "it, or choose another --out"
        )


def keep_lock(descriptor: int, path: Path) -> bool:
    """Return whether the locked file is still that at `path`; if it was removed, make and lock a new one."""
    try:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), path.lstat())
        new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        if not try_lock(new, if_unsupported=True):
            return False
        os.dup2(new, descriptor, inheritable=False)
    finally:
        os.close(new)
    return True
