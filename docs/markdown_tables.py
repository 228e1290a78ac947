"""Markdown of what benchmarks have written: their files, tables, numbers as text."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NOT_YET = "Not measured yet.\n"
Text = Callable[[], str]


class NotMeasuredError(LookupError):
    """A file of a benchmark, or a part of it, is not there."""


def read_json(name: str, *parts: str) -> Any:
    """Return what a benchmark has written, or a part of it."""
    path = BENCHMARKS / f"{name}.json"
    if not path.exists():
        raise NotMeasuredError(path)
    found = json.loads(path.read_text(encoding="utf-8"))
    for part in parts:
        if part not in found:
            raise NotMeasuredError(f"{path}: {part}")
        found = found[part]
    return found


def read_csv(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file that a benchmark has written."""
    path = BENCHMARKS / f"{name}.csv"
    if not path.exists():
        raise NotMeasuredError(path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def if_measured(text: Text) -> Text:
    """Return a text that says so where its numbers are not there."""

    def made() -> str:
        try:
            return text()
        except NotMeasuredError:
            return NOT_YET

    return made


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose columns are numbers, but for the first one."""
    head = [f"| {' | '.join(titles)} |", f"|---|{'---:|' * (len(titles) - 1)}"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows), ""])


def medians(measured: dict[str, list[float]]) -> dict[str, float]:
    """Return the medians of named measurements."""
    return {name: median(values) for name, values in measured.items()}


def count(number: float) -> str:
    """Return a rate or a number of things, without digits behind the point."""
    return f"{number:,.0f}"


def ratio(number: float) -> str:
    """Return a ratio with three digits."""
    return f"{number:,.{2 if number < 10 else 1 if number < 100 else 0}f}"


def span(numbers: Iterable[float], as_text: Callable[[float], str] = count) -> str:
    """Return the lowest and the highest of some numbers."""
    low, high = min(found := list(numbers)), max(found)
    return as_text(low) if as_text(low) == as_text(high) else f"{as_text(low)} to {as_text(high)}"


def percent(number: float, digits: int = 0) -> str:
    """Return a fraction in percent, without the sign."""
    return f"{100 * number:.{digits}f}"
