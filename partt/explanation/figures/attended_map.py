"""Colours: who is attended, relative to uniform attention."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from partt.explanation.attended_particles import RelativeAttention
from partt.explanation.figures.colour_table import colour_table
from partt.pages.drawing import Drawing

NORM = LogNorm(0.25, 4)


def draw_attended(
    name: str, title: str, caption: str, found: Sequence[RelativeAttention], class_names: tuple[str, ...]
) -> Drawing:
    """Draw a panel for each way to sort particles; rows are classes."""
    filled = np.flatnonzero(np.isfinite(np.concatenate([one.values for one in found], axis=1)).any(axis=1))
    rows = [class_names[number] for number in filled]
    widths = [len(one.categories) for one in found]
    size = (2.2 + 0.52 * sum(widths) + 0.2 * len(found), 1.9 + 0.36 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    all_axes = figure.subplots(1, len(found), width_ratios=widths, sharey=True, squeeze=False)[0]
    for axes, one in zip(all_axes, found, strict=True):
        image = colour_table(axes, one.values[filled], rows, one.categories, cmap="RdBu_r", norm=NORM)
        axes.set_title(one.title)
    bar = figure.colorbar(image, ax=list(all_axes), pad=0.01, label="relative to uniform attention")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["0.25", "0.5", "1", "2", "4"])
    bar.minorticks_off()
    return Drawing(name, title, caption, figure)
