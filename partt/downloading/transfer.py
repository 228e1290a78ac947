"""One file from a web server: continued where it ended, tried again, and verified by its checksum.

Bytes are appended to a partial file as they arrive: whatever ends a transfer, the next one goes on there.
"""

import errno
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import partt
from partt.data.files import access
from partt.errors import DataError, OutputError, ParttError

RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before further attempts in a row
BLOCK = 2**20  # bytes: of a read; what must arrive in bounded time, and lets patience start anew
RERUN = "what has arrived is kept, and the same command continues"
BEYOND_THE_END = 416  # HTTP: no byte where the range starts

_Result = TypeVar("_Result")


def announced_size(url: str) -> int | None:
    """Return the size that the server announces for a file, in bytes; None if it says nothing."""

    def attempt() -> int | None:
        answer = _ask(url, 0)
        answer.response.close()
        return answer.total

    return _with_patience(url, "its size", lambda: access.in_bounded_time(url, attempt))


def fetch(url: str, path: Path, size: int | None, checksum: str, progress: Callable[[int], None]) -> None:
    """Let a partial file become complete, with the published checksum; `progress` takes its size.

    With another checksum it is fetched a second time: the part that was there may be of another version.
    """
    found = ""
    for _ in range(2):
        found = _fetch_once(url, path, size, checksum, progress)
        if found == checksum:
            return
        path.unlink(missing_ok=True)
    raise DataError(
        f"{url}: the checksum is {found}, not {checksum} as published: damaged in two downloads, or another "
        "file"
    )


def _fetch_once(url: str, path: Path, size: int | None, like: str, progress: Callable[[int], None]) -> str:
    """Complete a partial file, and return its checksum."""
    with PartialFile(path, like) as file:
        if size is None or file.size != size:
            _with_patience(url, "the file", lambda: _receive(url, file, size, progress), lambda: file.size)
        return file.checksum


def file_checksum(path: Path, like: str) -> str:
    """Return the checksum of a file, of the kind of `like`: md5:... or sha256:..."""
    with PartialFile(path, like, writable=False) as file:
        return file.checksum


class PartialFile:
    """A file that grows at its end, with the checksum of its contents."""

    def __init__(self, path: Path, like: str, *, writable: bool = True) -> None:
        self._path = path
        self._kind = like.partition(":")[0]
        self._writable = writable
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if writable else os.O_RDONLY
        try:
            # O_NONBLOCK: opening a pipe does not wait for its other end
            self._descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise OutputError(f"{self._path} is not a regular file; remove it, or choose another --out")
            self._hash_contents()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        is_empty = os.fstat(self._descriptor).st_size == 0
        os.close(self._descriptor)
        if is_empty and self._writable:  # nothing has arrived
            self._path.unlink(missing_ok=True)

    @property
    def checksum(self) -> str:
        """The checksum of the contents: md5:... or sha256:..."""
        return f"{self._kind}:{self._hash.hexdigest()}"

    def append(self, block: bytes) -> None:
        """Write a block at the end."""
        view = memoryview(block)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise self._failure(error) from error
        self._hash.update(block)
        self.size += len(block)

    def restart(self) -> None:
        """Remove the contents."""
        os.ftruncate(self._descriptor, 0)
        self._hash_contents()

    def _hash_contents(self) -> None:
        self.size = 0
        self._hash: Any = hashlib.new(self._kind, usedforsecurity=False)
        try:
            while block := os.pread(self._descriptor, BLOCK, self.size):
                self._hash.update(block)
                self.size += len(block)
                access.check_signals(str(self._path))
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> OutputError:
        kept = f"; {RERUN}" if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else ""
        return OutputError(f"cannot write {self._path}: {error.strerror or error}{kept}")


def _with_patience(
    url: str, what: str, attempt: Callable[[], _Result], arrived: Callable[[], int] = lambda: 0
) -> _Result:
    """Return what `attempt` returns; try again, and with new patience whenever another block has arrived."""
    delays, most, num_attempts = iter(RETRY_DELAYS), arrived(), 0
    while True:
        num_attempts += 1
        try:
            return attempt()
        except ParttError:
            raise
        except Exception as error:  # of a server that fails in whatever way
            failure = access.data_error(url, what, error, num_attempts)
            if access.is_final(error):
                raise failure from error
            if arrived() >= most + BLOCK:
                delays, most, num_attempts = iter(RETRY_DELAYS), arrived(), 0
            delay = next(delays, None)
            if delay is None:
                raise DataError(f"{failure} W{RERUN[1:]}") from error
            access.pause(url, max(delay, access.retry_after(error)))


def _receive(url: str, file: PartialFile, size: int | None, progress: Callable[[int], None]) -> None:
    """Append what one request brings; raise an error if the file is not complete then."""
    try:
        answer = access.in_bounded_time(url, lambda: _ask(url, file.size))
    except HTTPError as error:
        if error.code != BEYOND_THE_END:
            raise
        if _total(error.headers.get("Content-Range", "")) == file.size:
            return
        file.restart()
        raise
    if answer.start != file.size:  # the server does not know ranges, and sends all
        file.restart()
    total = answer.total if size is None else size
    if answer.total not in {None, total}:
        answer.response.close()
        raise DataError(f"{url}: the file on the server has {answer.total} bytes, not {size} as published")
    for piece in _pieces(url, answer):
        file.append(piece)
        progress(file.size)
        if total is not None and file.size > total:
            raise DataError(f"{url}: the server sends more than the {total} bytes of the file")
    if total is not None and file.size < total:
        raise EOFError(f"the connection ended after {file.size} of {total} bytes")


@dataclass(frozen=True)
class _Answer:
    """What a server sends: bytes of the file from `start` on."""

    response: HTTPResponse
    start: int
    total: int | None  # bytes of the whole file, if the server says it


def _ask(url: str, start: int) -> _Answer:
    """Request a file from a byte on."""
    headers = {"User-Agent": f"partt/{partt.__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        request = Request(url, headers=headers)  # noqa: S310 - lists have web addresses only
        response: HTTPResponse = urlopen(request, timeout=access.remote_timeout())  # noqa: S310
    except HTTPError as error:
        error.close()
        raise
    except URLError as error:
        raise (error.reason if isinstance(error.reason, Exception) else error) from None
    if response.headers.get_content_type() == "text/html":
        response.close()
        raise DataError(f"{url}: the server sends a web page, not the file; is a login needed?")
    if response.status != 206:
        return _Answer(response, 0, response.length)
    sent = response.headers.get("Content-Range", "")
    if not sent.startswith(f"bytes {start}-"):
        response.close()
        raise OSError(f"asked for bytes from {start} on, got {sent[:60]!r}")
    return _Answer(response, start, _total(sent))


def _total(content_range: str) -> int | None:
    """Return the size of the whole file in a header Content-Range."""
    match = re.search(r"/(\d{1,18})$", content_range)
    return int(match[1]) if match else None


def _pieces(url: str, answer: _Answer) -> Iterator[bytes]:
    """Yield the body as it arrives.

    A thread reads it, and is abandoned if too little arrives or a signal asks to stop.
    """
    arrived: Queue[bytes | Exception] = Queue(maxsize=4)
    abandoned = threading.Event()

    def put(item: bytes | Exception) -> None:
        while not abandoned.is_set():
            with suppress(Full):
                arrived.put(item, timeout=access.POLL)
                return

    def read() -> None:
        last: bytes | Exception = b""
        with answer.response:
            left = answer.response.length  # some versions of read1 do not heed it
            try:
                while left != 0 and not abandoned.is_set():
                    piece = answer.response.read1(BLOCK if left is None else min(BLOCK, left))
                    if not piece:
                        break
                    left = None if left is None else left - len(piece)
                    put(piece)
            except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                last = error
            put(last)

    threading.Thread(target=read, daemon=True, name="partt download").start()
    limit = access.SLOWEST * access.remote_timeout()
    end, since = time.monotonic() + limit, 0
    try:
        while time.monotonic() < end:
            access.check_signals(url)
            try:
                piece = arrived.get(timeout=access.POLL)
            except Empty:
                continue
            if isinstance(piece, Exception):
                raise piece
            if not piece:
                return
            yield piece
            since += len(piece)
            if since >= BLOCK:
                end, since = time.monotonic() + limit, 0
        raise access.TooSlowError(
            f"less than {BLOCK} bytes in {limit:g} s; {access.TIMEOUT_VARIABLE} allows more time"
        )
    finally:
        abandoned.set()
