"""Numbers with errors as text, rounded to two digits of the error."""

import math
from dataclasses import dataclass

NO_RESULT = "–"
MAX_ZEROS = 12


@dataclass(frozen=True)
class Cell:
    """A number with its 68 % interval; of several seeds, their median and `spread`."""

    value: float
    low: float = math.nan
    high: float = math.nan
    spread: float = math.nan
    num_background: int | None = None  # background jets that pass (several seeds: on average)
    is_limit: bool = False  # no background passes: the value is a lower limit


@dataclass(frozen=True)
class CellText:
    """The parts of a cell, for any format to assemble."""

    value: str  # with "> " before a limit
    up: str = ""  # the interval above; equal to `down` if it is symmetric
    down: str = ""
    spread: str = ""  # over seeds
    count: str = ""  # background jets


def cell_text(cell: Cell | None) -> CellText:
    """Round a cell to two digits of its smallest error."""
    if cell is None:
        return CellText(NO_RESULT)
    count = "" if cell.num_background is None else f"{cell.num_background:,}"
    if cell.is_limit:
        return CellText(f"> {_two_digits(cell.value)}", count=count)
    errors = [error for error in (cell.high - cell.value, cell.value - cell.low) if 0 < error < math.inf]
    spreads = [cell.spread] if cell.spread > 0 else []  # NaN: a single seed
    if not errors and math.isnan(cell.spread):
        return CellText(
            _fixed(cell.value, 0 if cell.value >= 10 else _needed_decimals(cell.value)), count=count
        )
    digits = _decimals(min([*errors, *spreads], default=0.0), cell.value)
    spread = "" if math.isnan(cell.spread) else _fixed(cell.spread, digits)
    up, down = (_error(error, digits) for error in (cell.high - cell.value, cell.value - cell.low))
    return CellText(_fixed(cell.value, digits), *((up, down) if errors else ("", "")), spread, count)


def efficiency_text(value: float, low: float, high: float) -> CellText:
    """Round an efficiency to two digits of its (smaller) error."""
    if math.isnan(value):
        return CellText(NO_RESULT)
    if value == 0:
        return CellText(f"< {_two_digits(high)}")
    return cell_text(Cell(value, low, high))


def _error(error: float, digits: int) -> str:
    return "∞" if math.isinf(error) else _fixed(max(error, 0.0), digits)


def _decimals(error: float, value: float) -> int:
    """Return the decimals that show two digits of an error; without an error, of the value."""
    scale = error if error > 0 else abs(value) or 1.0
    return 1 - math.floor(math.log10(scale))


def _needed_decimals(value: float) -> int:
    return max(3, len(f"{value:.5f}".rstrip("0").partition(".")[2]))


def _fixed(value: float, decimals: int) -> str:
    if not -MAX_ZEROS <= decimals <= MAX_ZEROS:  # huge or tiny
        return f"{value:.2e}"
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"  # + 0.0: not -0


def _two_digits(value: float) -> str:
    return _fixed(value, 1 - math.floor(math.log10(value))) if value > 0 else "0"
