"""Calls of code from a user's file: errors in one line that names file and line, and seeded randomness."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from partt.errors import ConfigError, ParttError

MAX_MESSAGE = 300  # characters of an error of the user's code


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """Raise an error of the user's code as a ConfigError with the last line of the file that was running."""
    try:
        yield
    except (ParttError, MemoryError, torch.OutOfMemoryError):
        raise
    except (Exception, SystemExit) as error:
        if "allocate memory" in str(error):  # what torch raises on a CPU
            raise
        line, text = _last_line(error.__traceback__, path), str(error)
        if isinstance(error, SyntaxError) and error.filename == str(path):
            line, text = error.lineno, error.msg
        place = str(path) if line is None else f"{path}:{line}"
        detail = " ".join(text.split())[:MAX_MESSAGE]
        raise ConfigError(f"{place}: {type(error).__name__}{f': {detail}' if detail else ''}") from error


@contextmanager
def importing_beside(path: Path) -> Iterator[None]:
    """Let the file import others of its folder."""
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


@contextmanager
def seeded_by_torch() -> Iterator[None]:
    """Seed Python's and numpy's global generators from torch's, which checkpoints keep."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (what the user's code may draw from)
    seed = int(torch.randint(2**31, ()))
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _last_line(trace: TracebackType | None, path: Path) -> int | None:
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
