"""How long work is shown: a bar on a terminal, now and then a plain line elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 2.0  # seconds before anything is shown
LINE_EVERY = 30.0  # seconds between plain lines


@contextmanager
def progress_bar(title: str, *, unit: str, show: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a callback (done, total) that shows progress on standard error."""
    console = Console(stderr=True)
    if not show:
        yield lambda _done, _total: None
    elif console.is_terminal:
        yield from _bar(title, unit, console)
    else:
        yield _plain_lines(title, unit)


def _bar(title: str, unit: str, console: Console) -> Iterator[Callable[[int, int], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    started = time.monotonic()
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(title, total=None)

    def update(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - started > PATIENCE:
            bar.start()

    try:
        yield update
    finally:
        bar.stop()


def _plain_lines(title: str, unit: str) -> Callable[[int, int], None]:
    last = time.monotonic() - LINE_EVERY + PATIENCE

    def update(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            print(f"{title}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    return update
