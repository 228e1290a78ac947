"""Processes that read ahead, each with a pipe of its own.

A process that dies closes its pipe: whoever waits for it gets an error at once, in any thread, and even in
the middle of a message. A torch DataLoader has one pipe for all processes, which stays open, and a signal
handler that raises a death wherever the program is.
"""

import os
import pickle
import resource
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from typing import Any, Generic, TypeVar

import torch
from torch import multiprocessing  # which lets processes share the memory of tensors

from partt.data.reading.jet_source import ShouldStop
from partt.errors import ConfigError, DataError, ParttError
from partt.jobs.stop_signals import SignalledError, leave_signals_to_parent, signals_blocked

Unit = TypeVar("Unit")
Result = TypeVar("Result")

CHECK_STOP = 0.5  # seconds between checks, while waiting for a process, whether to stop
MAX_TEMP_DIR = 89  # bytes of a name that has room for that of a socket
LAST_READ = 5.0  # seconds in which processes may finish what nobody waits for any more
USE_FEWER = "use fewer workers; in a container, give it more shared memory (--shm-size)"


def read_ahead(
    read: Callable[[Unit], Result],
    units: Iterable[Unit],
    num_processes: int,
    should_stop: ShouldStop | None = None,
) -> Iterator[Result]:
    """Yield what `read` returns for each unit, in order, or raise what it raises.

    Each process reads one unit ahead; without processes, units are read when they are needed.
    """
    if num_processes == 0:
        yield from map(read, units)
        return
    remaining = iter(units)
    patience = LAST_READ
    readers: list[_Reader[Unit, Result]] = []
    asked: deque[_Reader[Unit, Result]] = deque()
    try:
        _start(readers, read, num_processes)
        for reader, unit in zip(readers, remaining, strict=False):
            reader.ask(unit)
            asked.append(reader)
        while asked:
            reader = asked.popleft()
            result = reader.result(should_stop)
            for unit in islice(remaining, 1):
                reader.ask(unit)
                asked.append(reader)
            yield result
    except SignalledError:
        patience = 0.0
        raise
    finally:
        _end(readers, patience)


class _Reader(Generic[Unit, Result]):
    """A process that reads, and the pipe to it."""

    def __init__(self, read: Callable[[Unit], Result]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_serve, args=(read, theirs), daemon=True)
        self.process.start()
        theirs.close()  # it is open in the process alone

    def ask(self, unit: Unit) -> None:
        """Let the process read a unit."""
        try:
            self.pipe.send(unit)
        except OSError as error:
            raise self._fault(error) from error

    def result(self, should_stop: ShouldStop | None) -> Result:
        """Wait for the result of the unit that was asked for first."""
        while not self.pipe.poll(CHECK_STOP):
            if should_stop is not None and should_stop():
                raise SignalledError("stopped by a signal while waiting for jets")
        try:
            result = self.pipe.recv()
        except (EOFError, OSError, RuntimeError) as error:
            raise self._fault(error) from error
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def _fault(self, error: Exception) -> DataError:
        self.process.join(LAST_READ)  # if it has died: what it has open is closed a moment earlier
        match self.process.exitcode:
            case None if isinstance(error, EOFError | ConnectionError):
                reason = type(error).__name__
            case None:
                return _shortage("cannot hand them over", error)
            case code:
                reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return DataError(f"a process that reads jets has died ({reason}); if memory ran out, {USE_FEWER}")


def _start(readers: list[_Reader[Unit, Result]], read: Callable[[Unit], Result], num_processes: int) -> None:
    """Start processes; those that have started are in the list, even if another one cannot start."""
    _make_temp_dir()
    try:
        for _ in range(num_processes):
            with signals_blocked():  # until the process leaves them to this one
                readers.append(_Reader(read))
    except OSError as error:
        raise _shortage("cannot be started", error) from error


def _make_temp_dir() -> None:
    """Make the folder of sockets; it is also theirs, or each would make one, and leave it if it is killed."""
    try:
        folder = get_temp_dir()
    except OSError as error:
        raise ConfigError(f"reading processes need a temporary folder: {error}; set TMPDIR to one") from error
    if len(os.fsencode(folder)) > MAX_TEMP_DIR:
        raise ConfigError(
            f"{folder}: this name is too long for the sockets of reading processes; set TMPDIR to a folder "
            "with a shorter name, such as /tmp, or use --workers 0"
        )


def _shortage(fault: str, error: Exception) -> DataError:
    if "Too many open files" in str(error) or "ancdata" in str(error):  # the latter if they do not arrive
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return DataError(
            f"{limit} file descriptors (ulimit -n) are too few for so many reading processes; use fewer with "
            "--workers"
        )
    return DataError(f"a process that reads jets {fault} ({error}); {USE_FEWER}")


def _serve(read: Callable[[Any], Any], pipe: Connection) -> None:
    """Answer each unit with what `read` returns or raises, until there are no more."""
    leave_signals_to_parent()
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):  # this process ends with its parent
        while (unit := pipe.recv()) is not None:
            try:
                result = read(unit)
            except Exception as error:  # noqa: BLE001 - raised by the parent
                if not isinstance(error, ParttError):
                    error.add_note(traceback.format_exc())
                result = _portable(error)
            try:
                pipe.send(result)
            except (OSError, RuntimeError) as error:
                pipe.send(_shortage("cannot hand them over", error))
            del result  # or it would be kept while the next one is read


def _portable(error: Exception) -> Exception:
    """Return an error as it is, or, if it would not survive the way to the parent, one with its words."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - a foreign class can do anything
        described = RuntimeError(f"{type(error).__name__}: {error}")
        described.add_note(traceback.format_exc())
        return described
    return error


def _end(readers: list[_Reader[Any, Any]], patience: float) -> None:
    """End processes, those that read on after some seconds by force."""
    for reader in readers:
        with suppress(OSError):  # it has died
            reader.pipe.send(None)
    end = time.monotonic() + patience
    for reader in readers:
        reader.process.join(max(0.0, end - time.monotonic()))
        reader.process.kill()
        reader.process.join()
        reader.pipe.close()
