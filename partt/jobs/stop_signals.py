"""Stop on signals: the first one asks a job to save and stop, a second one ends it at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a signal has asked to stop.

    Reading processes inherit the handlers: a signal to the whole process group lets them finish their work.
    """
    stop = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal stop
        del frame
        if stop:
            os._exit(128 + number)
        stop = True

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield lambda: stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
