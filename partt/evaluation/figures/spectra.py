"""Spectra of predictions beside those of true values: peaks before and after a correction."""

from matplotlib.patches import Patch

from partt.evaluation.figures.predictors import (
    add_legend,
    drawn_groups,
    drawn_predictors,
    group_panels,
    quantity_label,
)
from partt.evaluation.regression_table import TargetResults
from partt.pages.drawing import Drawing

TRUE_COLOUR = "#d9d9d9"
CAPTION = "Predictions and baselines as lines, true values filled, by true class."


def draw_spectra(target: TargetResults, key: str) -> Drawing:
    """Draw a panel for all jets and for each class."""
    figure, drawn = group_panels(drawn_groups(target), 2.7, 2.3)
    edges = target.plan.value_edges
    for axes, group in drawn:
        true = target.main.true_spectrum[target.main.groups.index(group)]
        axes.stairs(true, edges, fill=True, color=TRUE_COLOUR)
        highest = [float(true.max())]
        for predictor, style in drawn_predictors(target):
            if group in predictor.groups:
                spectrum = predictor.first.spectrum[predictor.groups.index(group)]
                axes.stairs(spectrum, edges, color=style.colour, linestyle=style.line, linewidth=1.4)
                highest.append(float(spectrum.max()))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, _top(highest))
    figure.supxlabel(quantity_label(target, "").strip())
    figure.supylabel("fraction of jets")
    add_legend(figure, target, ("true value", Patch(color=TRUE_COLOUR)), points=False)
    title = (
        f"{target.main.task.factor_of} before and after the correction"
        if target.main.task.factor_of
        else f"Spectrum of {target.title}"
    )
    return Drawing(f"spectra_{key}", title, CAPTION, figure)


def _top(highest: list[float]) -> float:
    """Return the upper end of an axis: a true value that is the same for all jets may leave the picture."""
    predicted = max(highest[1:], default=0.0)
    return 1.15 * (min(max(highest), 2 * predicted) or max(highest)) or 1.0
