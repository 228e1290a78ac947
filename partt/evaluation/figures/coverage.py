"""Whether predicted uncertainties are right: coverage of quantiles and intervals, pulls."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from partt.evaluation.figures.predictors import drawn_groups, drawn_predictors
from partt.evaluation.regression_table import TargetResults, cell_at
from partt.evaluation.responses import PULL_EDGES, CoverageSummary
from partt.evaluation.table_formats import plain_text
from partt.pages.drawing import Drawing
from partt.pages.number_text import cell_text
from partt.pages.style import colour, grid_shape, panels, plain
from partt.scores.intervals import Interval

CAPTION = "Fraction of true values, by class, beside what was predicted (dashed); 68 % intervals."
CAPTION_OF_PULLS = "All jets: (true value - mean) / width, beside a normal distribution (dashed)."


def draw_coverage(target: TargetResults, key: str) -> Drawing | None:
    """Draw a panel for each model that predicts quantiles or a width; None if none does."""
    found = [(one, one.regression.coverage) for one, _ in drawn_predictors(target) if one.regression]
    shown = [(one, coverage) for one, coverage in found if coverage is not None]
    if not shown:
        return None
    groups = drawn_groups(target)
    rows, columns = grid_shape(len(shown))
    width = max(4.0, 1.4 + 0.45 * len(groups))
    figure = Figure(figsize=(1.0 + width * columns, 1.2 + 3.4 * rows), layout="constrained")
    all_axes = panels(figure, len(shown), sharey=True)
    handles: dict[str, Any] = {}
    for axes, (predictor, coverage) in zip(all_axes, shown, strict=True):
        numbers = [predictor.groups.index(group) for group in groups if group in predictor.groups]
        for label, expected, interval in _fractions(coverage):
            value, low, high = (values[numbers] for values in interval)
            is_known = ~np.isnan(value)
            errors = np.maximum([value - low, high - value], 0)[:, is_known]
            shade = handles[label].lines[0].get_color() if label in handles else colour(len(handles))
            axes.axhline(expected, color=shade, linestyle="--", linewidth=1.0)
            handles[label] = axes.errorbar(
                np.flatnonzero(is_known), value[is_known], yerr=errors, fmt="o", markersize=4, color=shade
            )
        axes.set_xlim(-0.6, len(numbers) - 0.4)
        names = [plain(predictor.groups[number]) for number in numbers]
        axes.set_xticks(range(len(numbers)), names, rotation=45, ha="right")
        axes.xaxis.minorticks_off()
        axes.set_ylim(0, 1)
        axes.set_title(plain(predictor.title))
    figure.legend(handles.values(), handles, loc="outside upper center", ncols=2, fontsize=9)
    figure.supylabel("fraction of true values")
    return Drawing(f"coverage_{key}", f"Coverage of {target.title}", CAPTION, figure)


def _fractions(coverage: CoverageSummary) -> list[tuple[str, float, Interval]]:
    """Return label, expectation and fractions (G,) of each quantile, and of the interval."""
    found = [
        (
            f"below the {100 * quantile:g} % quantile",
            float(quantile),
            Interval(*(values[:, number] for values in coverage.below)),
        )
        for number, quantile in enumerate(coverage.quantiles)
    ]
    if not np.isnan(coverage.expected):
        label = f"inside the {100 * coverage.expected:.3g} % interval"
        found.append((label, coverage.expected, coverage.inside))
    return found


def draw_pulls(target: TargetResults, key: str) -> Drawing | None:
    """Draw a panel for each model that predicts a width; None if none does."""
    found = [(one, style, one.regression.pulls) for one, style in drawn_predictors(target) if one.regression]
    shown = [(one, style, pulls) for one, style, pulls in found if pulls is not None]
    if not shown:
        return None
    rows, columns = grid_shape(len(shown))
    figure = Figure(figsize=(1.4 + 3.6 * columns, 1.0 + 3.2 * rows), layout="constrained")
    grid = np.linspace(PULL_EDGES[0], PULL_EDGES[-1], 201)
    step = PULL_EDGES[1] - PULL_EDGES[0]
    for axes, (predictor, style, pulls) in zip(
        panels(figure, len(shown), sharex=True, sharey=True), shown, strict=True
    ):
        axes.stairs(pulls.histogram[0], PULL_EDGES, fill=True, color=style.colour, alpha=0.5)
        axes.plot(grid, norm.pdf(grid) * step, color="black", linestyle="--", linewidth=1.2)
        median, width = (
            plain_text(cell_text(cell_at(interval, (0,))))
            for interval in (pulls.resolution.median, pulls.resolution.width)
        )
        text = f"median {median}\nwidth {width}"
        axes.text(0.04, 0.95, text, transform=axes.transAxes, fontsize=9, va="top")
        axes.set_xlim(PULL_EDGES[0], PULL_EDGES[-1])
        axes.set_ylim(0, 1.35 * max(float(pulls.histogram[0].max()), step * float(norm.pdf(0))))
        axes.set_title(plain(predictor.title))
    figure.supxlabel("pull")
    figure.supylabel("fraction of jets")
    return Drawing(f"pulls_{key}", f"Pulls of {target.title}", CAPTION_OF_PULLS, figure)
