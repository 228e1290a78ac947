"""Console output: tables, and progress as a live line on a terminal or as plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from partt.jobs.progress import Progress

MIN_WIDTH = 80  # columns; narrower tables lose their contents
GAP = 2  # between columns of tables
MIN_BAR = 10  # columns; with less room, details go below the bar
PATIENCE = 2.0  # seconds before progress is shown
DRAW_EVERY = 0.2  # seconds between updates of a live line
LINE_EVERY = 30.0  # seconds between plain lines


def make_console() -> Console:
    """Return a console for standard output."""
    return Console(width=max(MIN_WIDTH, Console().width))


def make_table(*headings: str, title: str, numbers: Sequence[str] = (), show_header: bool = True) -> Table:
    """Return an empty table in the one style of all verbs: no frame, a line below the headings.

    `numbers` are the headings of further columns, which are aligned to the right.
    """
    table = Table(
        *headings,
        title=title,
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
        show_header=show_header,
    )
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table below its title, which may be the wider one."""
    title, table.title = table.title, None
    console.print(title, style="bold", highlight=False)
    console.print(table)


def fitting_tables(
    console: Console, lines: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]], title: str
) -> Iterator[Table]:
    """Yield tables that fit the console: each has the titles of the lines, and some of the columns.

    `columns`: heading and cells of each, as plain text.
    """
    titles = max(map(len, lines), default=0)
    widths = [max(map(len, [heading, *cells])) for heading, cells in columns]
    first = 0
    while first < len(columns):
        last, room = first + 1, console.width - titles - widths[first] - GAP
        while last < len(columns) and widths[last] + GAP <= room:
            room -= widths[last] + GAP
            last += 1
        headings = [escape(heading) for heading, _ in columns[first:last]]
        table = make_table("", title=title, numbers=headings)
        for number, line in enumerate(lines):
            table.add_row(escape(line), *(escape(cells[number]) for _, cells in columns[first:last]))
        yield table
        first = last


class LiveLine:
    """Progress on standard error: a live line on a terminal, else a plain line now and then."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_terminal = console.is_terminal
        # Standard output goes above the live line only if it is a terminal too, not a file.
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=sys.stdout.isatty()
        )
        self._drawn = time.monotonic() + PATIENCE - (DRAW_EVERY if self._is_terminal else LINE_EVERY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the live line."""
        self._live.stop()

    def show(self, title: str, done: int, total: int, details: str) -> None:
        """Update the line, unless the last update was a moment ago."""
        now = time.monotonic()
        if now - self._drawn < (DRAW_EVERY if self._is_terminal else LINE_EVERY):
            return
        self._drawn = now
        if not self._is_terminal:
            print(f"{title}: {details}", file=sys.stderr, flush=True)
            return
        self._live.update(_Bar(title, done / max(total, 1), details))
        if not self._live.is_started:
            self._live.start()
            self._live.console.show_cursor()  # it must not stay hidden if the process is killed
        self._live.refresh()


@dataclass(frozen=True)
class _Bar:
    """A title, a bar and details, which go below the bar if there is no room beside it."""

    title: str
    part: float
    details: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the bar in the available width."""
        del console
        room = options.max_width - len(self.title) - 1
        beside = room - len(self.details) - 1 >= MIN_BAR
        width = max(1, room - len(self.details) - 1 if beside else room)
        bar = ProgressBar(total=1, completed=self.part, width=width)
        line = Table.grid(padding=(0, 1))
        line.add_row(self.title, bar, *([self.details] if beside else []))
        yield line
        if not beside:
            yield Text(self.details)


@contextmanager
def progress_bar(title: str, *, unit: str, show: bool = True) -> Iterator[Progress]:
    """Yield a callback (done, total) that shows progress, speed and time left on standard error.

    What is done at the first call does not count towards the speed.
    """
    if not show:
        yield lambda _done, _total: None
        return
    start: tuple[float, int] | None = None
    with LiveLine() as line:

        def update(done: int, total: int) -> None:
            nonlocal start
            start = start or (time.monotonic(), done)
            seconds = time.monotonic() - start[0]
            details = f"{done:,} of {total:,} {unit}"
            if done > start[1] and seconds > 0:
                rate = (done - start[1]) / seconds
                details += f", {rate:,.0f} {unit}/s, {duration((total - done) / rate)} left"
            line.show(title, done, total, details)

        yield update


def duration(seconds: float) -> str:
    """Return a time as hours:minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
