"""Bias and width of the response against an observer, the true value or a score."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from partt.evaluation.figures.observer_dependence import axis_label
from partt.evaluation.figures.predictors import (
    add_legend,
    drawn_groups,
    drawn_predictors,
    group_panels,
    quantity_label,
    shifted_centres,
)
from partt.evaluation.regression_table import TRUE_VALUE, TargetResults, binned_by
from partt.evaluation.responses import ALL_JETS
from partt.pages.drawing import Drawing
from partt.pages.style import colour, grid_shape, panels, plain
from partt.scores.intervals import Interval
from partt.scores.passing import Floats

MAX_COLUMNS = 3
CAPTION = "All jets. Points in the same bin are drawn side by side; a bin needs 10 (effective) jets."
CAPTION_BY_CLASS = "Half of the central 68 % of the response, by true class."
CAPTION_OF_SCORES = (
    "Bias of the prediction for signal (filled) and background jets (open), in bins of each discriminant: "
    "a cut selects jets on the right."
)
MAX_LINES = 60  # edges of bins that are drawn as lines


def draw_response_dependence(target: TargetResults, key: str) -> Drawing:
    """Draw bias and, below, width of all jets against each observer, for all models and baselines."""
    observers = list(binned_by(target.main.prediction))
    columns = min(len(observers), MAX_COLUMNS)
    rows = 2 * -(-len(observers) // columns)
    figure = Figure(figsize=(1.6 + 3.6 * columns, 0.8 + 2.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for number, observer in enumerate(observers):
        row, column = 2 * (number // columns), number % columns
        upper, lower = grid[row][column], grid[row + 1][column]
        _draw_bins(upper, lower, target, observer, ALL_JETS)
        upper.axhline(0.0, color="grey", linewidth=0.8, zorder=0)
        upper.tick_params(labelbottom=False)
        lower.set_ylim(bottom=0)
        lower.set_xlabel(_label(target, observer))
        if column == 0:
            upper.set_ylabel("bias")
            lower.set_ylabel("width")
    for empty in range(len(observers), columns * rows // 2):
        for row in (rows - 2, rows - 1):
            grid[row][empty % columns].remove()
    add_legend(figure, target, points=True)
    return Drawing(f"dependence_{key}", f"Bias and width of {target.title} in bins", CAPTION, figure)


def draw_width_by_class(target: TargetResults, key: str, observer: str) -> Drawing:
    """Draw a panel of widths for each class."""
    figure, drawn = group_panels(drawn_groups(target)[1:], 2.9, 2.2)
    for axes, group in drawn:
        _draw_bins(None, axes, target, observer, group)
        axes.set_ylim(bottom=0)
    figure.supxlabel(_label(target, observer))
    figure.supylabel("width")
    add_legend(figure, target, points=True)
    title = f"Width of {target.title} against {observer}, by class"
    return Drawing(f"width_{key}", title, CAPTION_BY_CLASS, figure)


def draw_response_by_score(target: TargetResults, key: str, class_names: tuple[str, ...]) -> Drawing:
    """Draw the bias in bins of each discriminant, signal and background apart."""
    shown = list(target.main.by_discriminant.items())[: len(class_names)]
    rows, columns = grid_shape(len(shown))
    figure = Figure(figsize=(1.6 + 2.9 * columns, 1.3 + 2.2 * rows), layout="constrained")
    all_axes = panels(figure, len(shown), sharex=True, sharey=True)
    for axes, (title, binned) in zip(all_axes, shown, strict=True):
        signal = next((i for i, name in enumerate(class_names) if title.startswith(f"{name} vs")), 0)
        for row, (shade, face) in enumerate(((colour(signal), colour(signal)), ("#777777", "white"))):
            median = Interval(*(values[row] - target.plan.centre for values in binned.resolution.median))
            centres = shifted_centres(binned.edges, row - 0.5, 2)
            options = {"color": shade, "marker": "o", "markersize": 4, "markerfacecolor": face}
            _draw_points(axes, centres, median, {**options, "linestyle": "none", "linewidth": 1.2})
        axes.axhline(0.0, color="grey", linewidth=0.8, zorder=0)
        axes.set_xlim(0, 1)
        axes.set_title(plain(title))
    figure.supxlabel("discriminant")
    figure.supylabel("bias")
    return Drawing(
        f"bias_{key}_discriminants", f"Bias of {target.title} against scores", CAPTION_OF_SCORES, figure
    )


def _draw_bins(upper: Any, lower: Any, target: TargetResults, observer: str, group: str) -> None:
    """Draw biases (if there are axes for them) and widths of a group."""
    drawn = drawn_predictors(target)
    edges = binned_by(target.main.prediction)[observer].edges
    for position, (predictor, style) in enumerate(drawn):
        binned = binned_by(predictor.first).get(observer)
        if binned is None or group not in predictor.groups:
            continue
        number = predictor.groups.index(group)
        centres = shifted_centres(edges, position - (len(drawn) - 1) / 2, len(drawn))
        median, width = (
            Interval(*(values[number] for values in interval))
            for interval in (binned.resolution.median, binned.resolution.width)
        )
        if upper is not None:
            shifted = Interval(*(values - target.plan.centre for values in median))
            _draw_points(upper, centres, shifted, style.points)
        _draw_points(lower, centres, width, style.points)
    for axes in (lower, *([upper] if upper is not None else [])):
        _draw_edges(axes, edges)


def _draw_points(axes: Any, centres: Floats, interval: Interval, style: dict[str, Any]) -> None:
    is_known = ~np.isnan(interval.value)
    value, low, high = (values[is_known] for values in interval)
    errors = np.nan_to_num(np.maximum([value - low, high - value], 0))
    axes.errorbar(centres[is_known], value, yerr=errors, **style)


def _draw_edges(axes: Any, edges: Floats) -> None:
    for edge in edges[1:-1] if len(edges) <= MAX_LINES else ():
        axes.axvline(edge, color="#eeeeee", linewidth=0.8, zorder=0)
    axes.set_xlim(edges[0], edges[-1])


def _label(target: TargetResults, observer: str) -> str:
    return quantity_label(target, "true") if observer == TRUE_VALUE else axis_label(observer)
