"""Standard streams that outlast their readers, as with `partt train | head`."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

_Result = TypeVar("_Result")


class _LastingStream(io.TextIOWrapper):
    """A standard stream that discards what is written after the other end of its pipe was closed."""

    def write(self, text: str, /) -> int:
        """Write a text; never raise BrokenPipeError."""
        return self._lasting(lambda: io.TextIOWrapper.write(self, text)) or 0

    def flush(self) -> None:
        """Flush; never raise BrokenPipeError."""
        self._lasting(lambda: io.TextIOWrapper.flush(self))

    def _lasting(self, work: Callable[[], _Result]) -> _Result | None:
        try:
            return work()
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())  # takes what is buffered, and all that follows
            os.close(null)
            return None


class _LastingErrors(_LastingStream):
    """Standard error, which also outlasts a full disk: a job must not end because of its messages."""

    def _lasting(self, work: Callable[[], _Result]) -> _Result | None:
        with suppress(OSError):
            return super()._lasting(work)
        return None


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Let a job outlast the readers of its output; streams may even be closed from the start.

    Characters that the encoding of a stream lacks are written as escapes.
    """
    before = sys.stdout, sys.stderr
    try:
        sys.stdout, sys.stderr = (_lasting_stream(stream) for stream in before)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a full disk was reported before
                stream.flush()
        sys.stdout, sys.stderr = before


def _lasting_stream(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed when the command was started
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - as long as the process
    try:
        descriptor = stream.fileno()
        stream.flush()
    except (OSError, ValueError):
        return stream  # not a stream of the process
    is_error = stream is sys.stderr
    return (_LastingErrors if is_error else _LastingStream)(
        open(descriptor, "wb", closefd=False),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.isatty() or is_error,
    )
