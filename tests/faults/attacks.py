"""What tests of attacks share: their number, and the promise that each keeps: a ParttError, or success, soon."""

import os
import signal
from collections.abc import Callable
from typing import Any

from partt.errors import ParttError

NUM_ATTACKS = int(os.environ.get("PARTT_ATTACKS", "100"))  # of each family; thousands offline
MAX_SECONDS = 20  # generous: machines of CI are busy


def outcome(attempt: Callable[[], Any], max_lines: int = 1) -> str | None:
    """Return the message of the ParttError that `attempt` raises, or None; anything else fails the test."""

    def too_slow(*_: object) -> None:
        raise AssertionError(f"takes more than {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(MAX_SECONDS)
    message = None
    try:
        attempt()
    except ParttError as error:
        message = str(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert message is None or (len(message) < 20_000 and len(message.splitlines()) <= max_lines), message
    return message
