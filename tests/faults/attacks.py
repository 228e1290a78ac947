"""What tests of attacks share: their number, and the promise that each keeps.

An attack ends with a ParttError, or with success; soon, and in bounded memory.
"""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from partt.errors import ParttError

NUM_ATTACKS = int(os.environ.get("PARTT_ATTACKS", "100"))  # of each family; thousands offline
MAX_SECONDS = 20  # generous: machines of CI are busy
MAX_BYTES = 2**31  # that an attack may allocate


@contextmanager
def bounded_memory(max_bytes: int = MAX_BYTES) -> Iterator[None]:
    """Let allocations fail beyond `max_bytes` of what this process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + max_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def outcome(attempt: Callable[[], Any], max_lines: int = 1) -> str | None:
    """Return the message of the ParttError that `attempt` raises, or None; anything else fails the test."""

    def too_slow(*_: object) -> None:
        raise AssertionError(f"takes more than {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(MAX_SECONDS)
    message = None
    try:
        with bounded_memory():
            attempt()
    except ParttError as error:
        message = str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert message is None or (len(message) < 20_000 and len(message.splitlines()) <= max_lines), message
    return message
