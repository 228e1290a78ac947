"""Small panels of one size, each with a lower one below it, for a class or discriminant each."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from partt.pages.style import grid_shape

GAP = 0.12  # between a pair and the next, relative to an upper panel


def paired_panels(
    number: int, *, width: float = 3.1, height: float = 3.4, lower: float = 0.42
) -> tuple[Figure, Sequence[tuple[Any, Any]]]:
    """Return a figure and pairs of axes with a common x axis; sizes of a pair in inches.

    All axes are in one grid, so that labels at the rim do not make some of them smaller.
    """
    rows, columns = grid_shape(number)
    figure = Figure(figsize=(1.1 + width * columns, 1.2 + height * rows), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.0, wspace=0.03)  # type: ignore[union-attr,call-arg]
    grid = figure.add_gridspec(3 * rows - 1, columns, height_ratios=[1, lower, GAP] * (rows - 1) + [1, lower])
    found = []
    for index in range(number):
        row, column = divmod(index, columns)
        upper = figure.add_subplot(grid[3 * row, column])
        below = figure.add_subplot(grid[3 * row + 1, column], sharex=upper)
        upper.tick_params(labelbottom=False)
        below.tick_params(labelbottom=True)
        found.append((upper, below))
    return figure, found


def is_leftmost(index: int, number: int) -> bool:
    """Tell whether a panel is the first of its row."""
    return index % grid_shape(number)[1] == 0


def is_lowest(index: int, number: int) -> bool:
    """Tell whether no panel is below."""
    return index + grid_shape(number)[1] >= number


def say(axes: Any, text: str) -> None:
    """Write into a panel that has nothing to show."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=9, color="#666666")
