"""Bytes of local and remote files: retries, and one clear error for each failure.

No file stays open between calls, so many files need few descriptors and a forked process shares none.
"""

import atexit
import os
import re
import stat
import sys
import threading
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, TypeVar

import fsspec
import fsspec.config

from partt.errors import ConfigError, DataError, ParttError
from partt.jobs.stop_signals import SignalledError, stop_requested
from partt.regular_files import require_regular

RETRY_DELAYS = (0.5, 1.0)  # seconds before the second and third attempt of a remote read
MERGE_GAP = 65536  # bytes between two ranges that are cheaper to read than a second request
MAX_REQUEST = 2**28  # bytes; one system call reads less than 2 GiB
TIMEOUT_VARIABLE = "PARTT_REMOTE_TIMEOUT"  # of the environment: seconds without a byte from a server
DEFAULT_TIMEOUT = 60.0
SLOWEST = 10  # timeouts that a single read may take, however steadily bytes arrive
POLL = 0.05  # seconds between checks, while waiting for a server, whether a signal asks to stop
BUSY = {429, 503}  # HTTP: too many requests, service unavailable
# Names that file systems give to the version of a file, in lower case without - and _.
VERSION_KEYS = ("etag", "versionid", "generation", "digest", "lastmodified", "modified", "mtime")
# By default xrootd waits ten minutes for a dead server; partt retries instead.
XROOTD_SETTINGS = {
    "XRD_CONNECTIONWINDOW": "5",
    "XRD_CONNECTIONRETRY": "1",
    "XRD_STREAMERRORWINDOW": "0",
}

_Result = TypeVar("_Result")
Range = tuple[int, int]  # first byte, end (excluded)
Stamp = tuple[int | None, *tuple[int | str, ...]]  # size, then what else changes when a file changes


class AuthenticationError(DataError):
    """Access denied: never a reason to skip a file, because the next one will be denied too."""


@contextmanager
def bad_files_skipped(skip: bool) -> Iterator[None]:
    """End the block, if asked to, where a file cannot be read; access that is denied stays an error."""
    try:
        yield
    except DataError as error:
        if not skip or isinstance(error, AuthenticationError):
            raise


def is_remote(url: str) -> bool:
    """Tell whether a URL has a protocol such as root:// or https://."""
    return "://" in url and not url.startswith("file://")


def local_path(url: str) -> str:
    """Return the path of a local file."""
    return os.path.expanduser(url.removeprefix("file://"))  # noqa: PTH111 - pathlib raises at "~nobody"


def remote_timeout() -> float:
    """Return how long to wait for the next byte from a server, in seconds."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text or DEFAULT_TIMEOUT)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"{TIMEOUT_VARIABLE}={text}: give a number of seconds, such as 60")
    return seconds


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a remote URL, and the path in it; set missing timeouts."""
    timeout = remote_timeout()
    whole_seconds = max(1, round(timeout))  # xrootd takes no fractions
    settings = {**XROOTD_SETTINGS, "XRD_REQUESTTIMEOUT": str(whole_seconds)}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    options = fsspec.config.conf.setdefault("root", {})
    options.setdefault("timeout", whole_seconds)
    options.setdefault("use_listings_cache", False)  # a cached listing hides new and deleted files
    if url.startswith(("http://", "https://")):
        _set_http_timeout(timeout)
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise DataError(f"{url}: {error}; install it with: pip install 'partt[remote]'") from error
    except Exception as error:  # each file system has its own errors; some connect at once (ftp)
        detail = f"{type(error).__name__}: {_one_line(error)}".removesuffix(": ")
        raise DataError(f"{url}: not a URL that can be read: {detail}") from error
    if "XRootD" in sys.modules:
        _silence_xrootd_at_exit()
    return fs, path


def _set_http_timeout(seconds: float) -> None:
    try:
        import aiohttp  # noqa: PLC0415 - an extra
    except ImportError:
        return  # fsspec says what is missing
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
    for protocol in ("http", "https"):
        fsspec.config.conf.setdefault(protocol, {}).setdefault("client_kwargs", {"timeout": timeout})


@cache
def _silence_xrootd_at_exit() -> None:
    """Ignore a torch warning at exit, when XRootD inspects all Python objects."""
    # Registered last, run first: before XRootD's own function.
    finalizer = r"XRootD\.client\.finalize$"
    atexit.register(warnings.filterwarnings, "ignore", category=FutureWarning, module=finalizer)


def file_stamp(url: str) -> Stamp:
    """Return what changes when a file changes: size, time and inode, or size and the server's versions."""
    if not is_remote(url):
        status = os.stat(local_path(url))  # noqa: PTH116 - called for each chunk, and faster
        if not stat.S_ISREG(status.st_mode):
            require_regular(local_path(url))
        return status.st_size, status.st_mtime_ns, status.st_ino
    fs, path = filesystem(url)
    info = fs.info(path)
    versions = {re.sub("[-_]", "", key).lower(): value for key, value in info.items()}
    known = [f"{name}={versions[name]}" for name in VERSION_KEYS if versions.get(name)]
    return info.get("size"), *known


def read_ranges(url: str, ranges: Sequence[Range]) -> list[memoryview]:
    """Return the bytes of each range, read in few requests."""
    runs = _merge(ranges)
    blocks = _read_remote(url, runs) if is_remote(url) else _read_local(local_path(url), runs)
    for (start, stop), block in zip(runs, blocks, strict=True):
        if len(block) > stop - start:
            raise DataError(f"{url}: the server sends whole files, not byte ranges; download the file first")
        if len(block) < stop - start:
            raise EOFError(f"got {len(block)} bytes instead of {stop - start} at byte {start}")
    firsts = [start for start, _ in runs]
    views = [memoryview(block) for block in blocks]
    pieces = []
    for start, stop in ranges:
        run = bisect_right(firsts, start) - 1
        pieces.append(views[run][start - firsts[run] : stop - firsts[run]])
    return pieces


def with_retries(url: str, what: str, attempt: Callable[[], _Result]) -> _Result:
    """Return what `attempt` returns; a failure becomes a DataError that names the file and `what` was read.

    Remote reads are retried after RETRY_DELAYS, or when a busy server asks for it, unless access was denied
    or the file does not exist. They end when a signal asks the job to stop.
    """
    delays = iter(RETRY_DELAYS if is_remote(url) else ())
    while True:
        try:
            return in_bounded_time(url, attempt) if is_remote(url) else attempt()
        except ParttError:
            raise
        except Exception as error:  # a broken file can make its reader raise anything
            if is_remote(url):
                _drop_connections(url)
            delay = None if is_final(error) else next(delays, None)
            if delay is None:
                raise data_error(url, what, error, len(RETRY_DELAYS) + 1) from error
            delay = max(delay, retry_after(error))
        pause(url, delay)


class TooSlowError(Exception):
    """Bytes arrive, but too slowly."""


def is_final(error: Exception) -> bool:
    """Tell whether another attempt cannot help: access denied, no such file, too slow."""
    return _denial(error) is not None or _is_missing(error) or isinstance(error, TooSlowError)


def in_bounded_time(url: str, attempt: Callable[[], _Result]) -> _Result:
    """Run an attempt in a thread, which is abandoned if it takes too long, or a signal asks to stop."""
    outcome: Future[_Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            outcome.set_exception(error)

    limit = SLOWEST * remote_timeout()
    threading.Thread(target=run, daemon=True, name="partt remote read").start()
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with suppress(TimeoutError):
            outcome.exception(timeout=POLL)
        if outcome.done():
            return outcome.result()
        check_signals(url)
    raise TooSlowError(f"not complete after {limit:g} s; {TIMEOUT_VARIABLE} allows more time")


def pause(url: str, seconds: float) -> None:
    """Wait before another attempt; a signal ends the wait for a server."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(POLL, left))
        if is_remote(url):
            check_signals(url)


def check_signals(url: str) -> None:
    """Raise an error if a signal asks the job to stop."""
    if stop_requested():
        raise SignalledError(f"stopped by a signal while waiting for {url}")


def retry_after(error: BaseException) -> float:
    """Return how many seconds a busy web server asks to wait, at most a timeout; 0 if it does not."""
    for link in _chain(error):
        if getattr(link, "status", None) in BUSY:
            text = str((getattr(link, "headers", None) or {}).get("Retry-After", ""))
            try:
                seconds = float(text) if text.isdecimal() else _seconds_until(text)
            except (TypeError, ValueError):
                seconds = 0.0
            return min(max(seconds, 0.0), remote_timeout())
    return 0.0


def _seconds_until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time.time()


def _drop_connections(url: str) -> None:
    fs, _ = filesystem(url)
    with suppress(OSError):
        fs.invalidate_cache()
    handles = getattr(fs, "_readonly_filehandle_cache", None)
    if handles is not None:
        handles._cache.clear()  # noqa: SLF001 - fsspec-xrootd keeps using a handle that it cannot close


def data_error(url: str, what: str, error: Exception, num_attempts: int) -> DataError:
    """Return one clear error for whatever a file or its server raised in the last attempt."""
    denial = _denial(error)
    if denial is not None:
        return AuthenticationError(f"{url}: access denied ({denial}); check the permissions, or log in again")
    if _is_missing(error):
        return DataError(f"{url}: no such file (mistyped, moved or deleted?)")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{url}: is a folder; give its files: {url.rstrip('/')}/*.root")
    shown = list(_chain(error))[-1] if isinstance(error, FileNotFoundError) else error
    detail = f"{type(shown).__name__.lstrip('_')}: {_one_line(shown)}".removesuffix(": ")
    if isinstance(error, TimeoutError) and is_remote(url):
        detail = f"no byte for {remote_timeout():g} s ({TIMEOUT_VARIABLE})"
    tried_again = is_remote(url) and not isinstance(error, TooSlowError)
    attempts = f" ({num_attempts} attempts)" if tried_again else ""
    hint = "is the server up and the file complete?" if is_remote(url) else "copy or make the file again"
    if isinstance(error, MemoryError):
        hint = "use fewer threads or workers, or copy the file again if it is damaged"
    return DataError(f"{url}: cannot read {what}{attempts}: {detail}; {hint}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__


def _denial(error: BaseException) -> str | None:
    """Return the message of an error that means access denied; None for other errors."""
    for link in _chain(error):
        text = _one_line(link)
        if isinstance(link, PermissionError) or getattr(link, "status", None) in {401, 403}:
            return text
        # xrootd has no exception types: 3010 not authorized, 3030 authentication failed
        if isinstance(link, OSError) and any(sign in text for sign in ("[3010]", "[3030]", "Auth failed")):
            return text
    return None


def _is_missing(error: BaseException) -> bool:
    # fsspec reports every failure of a web server as "not found": look at the original error.
    *_, origin = _chain(error)
    return (
        isinstance(origin, FileNotFoundError)
        or getattr(origin, "status", None) in {404, 410}
        or (isinstance(origin, OSError) and "[3011]" in str(origin))
    )


def _merge(ranges: Sequence[Range]) -> list[Range]:
    """Merge ranges that touch or nearly touch."""
    runs: list[Range] = []
    for start, stop in sorted(ranges):
        if runs and start - runs[-1][1] <= MERGE_GAP and stop - runs[-1][0] <= MAX_REQUEST:
            runs[-1] = (runs[-1][0], max(stop, runs[-1][1]))
        else:
            runs.append((start, stop))
    return runs


def _read_local(path: str, runs: Sequence[Range]) -> list[bytes]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [os.pread(descriptor, stop - start, start) for start, stop in runs]
    finally:
        os.close(descriptor)


def _read_remote(url: str, runs: Sequence[Range]) -> list[bytes]:
    fs, path = filesystem(url)
    starts, stops = [start for start, _ in runs], [stop for _, stop in runs]
    blocks: list[bytes] = fs.cat_ranges([path] * len(runs), starts, stops, on_error="raise")
    return blocks
