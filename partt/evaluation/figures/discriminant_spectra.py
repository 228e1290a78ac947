"""Distributions of discriminants for signal and background, with the working points."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from partt.evaluation.figures.observer_dependence import spelled
from partt.evaluation.log_odds import log_odds
from partt.evaluation.summary import DiscriminantSummary
from partt.pages.drawing import Drawing
from partt.pages.style import colour, grid_shape, panels, plain

BACKGROUND = "#555555"
TICKS = (1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
MAX_TICKS = 6
DASHES = ("--", ":", "-.", (0, (1, 1)))
MAX_LINES = 4  # working points
CAPTION = (
    "Signal filled, background as a line, each normalised to 1; the axis is linear in ln D/(1 - D). Vertical "
    "lines are the thresholds of the working points: jets to their right pass. The first and last bins "
    "include underflow and overflow."
)


def draw_discriminants(discriminants: Mapping[str, DiscriminantSummary]) -> Drawing:
    """Draw a panel for each discriminant."""
    rows, columns = grid_shape(len(discriminants))
    figure = Figure(figsize=(1.2 + 2.9 * columns, 1.1 + 2.5 * rows), layout="constrained")
    for axes, one in zip(panels(figure, len(discriminants)), discriminants.values(), strict=True):
        shade = colour(one.class_number)
        spectrum = one.spectrum
        axes.stairs(spectrum.signal, spectrum.edges, fill=True, color=shade, alpha=0.45)
        axes.stairs(spectrum.background, spectrum.edges, color=BACKGROUND, linewidth=1.4)
        axes.set_yscale("log")
        filled = np.concatenate([spectrum.signal, spectrum.background])
        filled = filled[filled > 0]
        axes.set_ylim(filled.min() / 2, filled.max() * 40)  # room for the legend
        axes.set_xlim(spectrum.edges[0], spectrum.edges[-1])
        lines = []
        for number, found in enumerate(one.working_points[:MAX_LINES]):
            point = found.point
            place = float(log_odds(np.array([point.threshold]))[0])
            style: Any = {"color": "black", "linestyle": DASHES[number], "linewidth": 1.1}
            axes.axvline(place, ymax=0.72, **style)
            lines.append((f"{spelled(point.request)}: D ≥ {point.threshold:.4g}", Line2D([], [], **style)))
        axes.legend(
            [line for _, line in lines],
            [text for text, _ in lines],
            loc="upper left",
            fontsize=8.5,
            handlelength=1.6,
            borderpad=0.2,
        )
        _set_ticks(axes)
        axes.set_title(plain(one.discriminant.title))
    figure.supxlabel(r"discriminant $D = s_S / (s_S + s_B)$", fontsize=12)
    figure.supylabel("fraction of jets", fontsize=12)
    handles = [Patch(color="#999999", alpha=0.45), Line2D([], [], color=BACKGROUND, linewidth=1.4)]
    figure.legend(handles, ["signal", "background"], loc="outside upper center", ncols=2)
    return Drawing("discriminants", "Discriminants and working points", CAPTION, figure)


def _set_ticks(axes: Any) -> None:
    """Label the axis of log-odds with the discriminant itself."""
    low, high = axes.get_xlim()
    inside = [value for value in TICKS if low <= log_odds(np.array([value]))[0] <= high]
    while len(inside) > MAX_TICKS:
        inside = inside[::2]
    axes.xaxis.set_major_locator(FixedLocator([float(log_odds(np.array([value]))[0]) for value in inside]))
    axes.xaxis.set_major_formatter(FixedFormatter([_tick(value) for value in inside]))
    axes.xaxis.set_minor_locator(NullLocator())


def _tick(value: float) -> str:
    return f"{value:g}" if 1e-3 <= value <= 0.999 else _power(value)


def _power(value: float) -> str:
    """Return 10^-5, or 1-10^-5 for values close to 1."""
    small = min(value, 1 - value)
    power = rf"10^{{{round(np.log10(small))}}}"
    return f"${power}$" if value < 0.5 else f"$1-{power}$"
