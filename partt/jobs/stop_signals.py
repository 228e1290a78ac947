"""A first signal asks a run to save and stop; a second one ends it at once."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether a signal asked to stop.

    Processes that read data inherit this: a signal to the whole group lets them finish their work.
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
