"""A progress bar in a notebook; elsewhere nothing: a library does not print."""

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from partt.jobs.progress import Progress

PATIENCE = 1.0  # seconds before it appears
DRAW_EVERY = 0.25  # seconds


def notebook_progress(title: str, unit: str) -> Progress:
    """Return a callback (done, total) that shows a bar in a Jupyter notebook, and nothing elsewhere."""
    if not in_notebook():
        return lambda _done, _total: None
    return _Bar(title, unit).show


def in_notebook() -> bool:
    """Tell whether this is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


class _Bar:
    """A bar that is replaced in place, and says in the end what was done."""

    def __init__(self, title: str, unit: str) -> None:
        self._title, self._unit = title, unit
        self._started = time.monotonic()
        self._drawn = self._started + PATIENCE - DRAW_EVERY
        self._handle: Any = None

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        is_last = done >= total
        if now - self._drawn < DRAW_EVERY and not (is_last and self._handle):
            return
        self._drawn = now
        display: Any = import_module("IPython.display")  # which is there: this is a notebook
        seconds = now - self._started
        text = f"{done:,} of {total:,} {self._unit}, {seconds:.0f} s"
        bar = display.HTML(
            f"{escape(self._title)} <progress value='{done}' max='{max(total, 1)}'></progress> {escape(text)}"
        )
        if self._handle is None:
            self._handle = display.display(bar, display_id=True)
        else:
            self._handle.update(bar)
