"""Prediction against true value, as two-dimensional histograms."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from partt.evaluation.figures.predictors import drawn_predictors, quantity_label
from partt.evaluation.regression_table import TargetResults
from partt.pages.drawing import Drawing
from partt.pages.style import grid_shape, panels, plain

MAX_PANELS = 6
CAPTION = "All jets; the line is where a perfect prediction would be."


def draw_predicted_true(target: TargetResults, key: str) -> Drawing:
    """Draw a panel for each model and baseline."""
    shown = drawn_predictors(target)[:MAX_PANELS]
    rows, columns = grid_shape(len(shown))
    figure = Figure(figsize=(1.9 + 3.3 * columns, 0.8 + 3.2 * rows), layout="constrained")
    edges = target.plan.value_edges
    all_axes = panels(figure, len(shown), sharex=True, sharey=True)
    filled = np.concatenate([predictor.first.against_true.ravel() for predictor, _ in shown])
    filled = filled[filled > 0]
    low, high = (float(filled.min()), float(filled.max())) if len(filled) else (1.0, 10.0)
    norm = LogNorm(low, high if high > low else 10 * low)
    for axes, (predictor, _) in zip(all_axes, shown, strict=True):
        counts = predictor.first.against_true
        image = axes.pcolormesh(
            edges,
            edges,
            np.ma.masked_less_equal(counts.T, 0),
            norm=norm,
            cmap="viridis",
            rasterized=True,
        )
        axes.plot(edges[[0, -1]], edges[[0, -1]], color="#bd1f01", linewidth=1.0, linestyle="--")
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(edges[0], edges[-1])
        axes.set_title(plain(predictor.title))
    figure.supxlabel(quantity_label(target, "true"))
    figure.supylabel(quantity_label(target, "predicted"))
    label = "weight of jets in a bin" if target.is_weighted else "jets in a bin"
    figure.colorbar(image, ax=all_axes, label=label, pad=0.02, aspect=30)
    return Drawing(f"prediction_{key}", f"Prediction against true value of {target.title}", CAPTION, figure)
