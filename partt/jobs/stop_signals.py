"""Stop on signals: the first one asks a job to save and stop, a later one ends it at once.

Jobs that can be continued finish what they are doing (`stop_on_signal`); others are left by an exception, so
that their temporary files are removed (`raise_on_signal`).

Batch systems signal every process of a job, and torchrun passes on what its processes have already received:
so a repetition within REPEAT seconds is the same request, and helper processes leave signals to their parent.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from partt.errors import ParttError

STOPPED = 75  # exit code: stopped by a signal, everything saved
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REPEAT = 1.0  # seconds
CHECK_PARENT = 0.5  # seconds between checks of a helper process whether its parent is alive


class SignalledError(ParttError):
    """A signal ended a wait; the same command continues the job."""

    exit_code = STOPPED


class StoppedError(Exception):
    """A job stops because a signal, or its caller, asked it to."""


class SignalInterrupt(KeyboardInterrupt):
    """SIGTERM or SIGHUP ends a job as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Request:
    """When the running job was asked to stop; None: it was not."""

    time: float | None = None


def stop_requested() -> bool:
    """Return whether a signal has asked the running job to stop; a wait for a server then ends."""
    return _Request.time is not None


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has asked to stop.

    Signals that are ignored stay ignored: `nohup` relies on it.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if _Request.time is None:
            _Request.time = now
        elif now - _Request.time > REPEAT:
            os._exit(128 + number)

    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield stop_requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _Request.time = None


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP raise a SignalInterrupt; one much later ends the process at once."""
    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        now = time.monotonic()
        if not first:
            first.append(now)
            raise SignalInterrupt(number)
        if now - first[0] > REPEAT:
            os._exit(128 + number)

    heeded = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]  # not Ctrl-C
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals in this thread, and in threads and processes that are started in the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_parent() -> None:
    """Let this helper process ignore signals, unless its parent sends them, and end when its parent ends."""
    process = multiprocessing.parent_process()
    parent = os.getppid() if process is None else process.pid
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def watch() -> None:
        while os.getppid() == parent:
            received = signal.sigtimedwait(SIGNALS, CHECK_PARENT)
            if received is not None and received.si_pid == parent:
                break
        os._exit(0)  # torch reports readers that end with another code

    threading.Thread(target=watch, daemon=True).start()
