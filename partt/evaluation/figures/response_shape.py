"""Distribution of the response, by class: models and baselines."""

from partt.evaluation.figures.predictors import (
    add_legend,
    drawn_groups,
    drawn_predictors,
    group_panels,
    response_label,
)
from partt.evaluation.regression_table import TargetResults, cell_at
from partt.pages.drawing import Drawing

CAPTION = "Distribution by true class; w is half of the central 68 %, as in the table."


def draw_response_shape(target: TargetResults, key: str) -> Drawing:
    """Draw a panel for all jets and for each class."""
    figure, drawn = group_panels(drawn_groups(target), 2.7, 2.3)
    edges = target.plan.response_edges
    for axes, group in drawn:
        highest, line = 0.0, 0
        for predictor, style in drawn_predictors(target):
            if group not in predictor.groups:
                continue
            number = predictor.groups.index(group)
            density = predictor.first.responses[number]
            axes.stairs(density, edges, color=style.colour, linestyle=style.line, linewidth=1.4)
            highest = max(highest, float(density.max()))
            cell = cell_at(predictor.first.resolution.width, (number,))
            if cell is not None:
                axes.text(
                    0.97,
                    0.95 - 0.09 * line,
                    f"w = {cell.value:.3g}",
                    transform=axes.transAxes,
                    color=style.colour,
                    fontsize=9,
                    ha="right",
                    va="top",
                )
                line += 1
        axes.axvline(target.plan.centre, color="#bbbbbb", linewidth=0.8, zorder=0)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.25 * highest or 1.0)
    figure.supxlabel(response_label(target))
    figure.supylabel("fraction of jets")
    add_legend(figure, target, points=False)
    title = f"{'Response' if target.plan.is_ratio else 'Residual'} of {target.title}"
    return Drawing(f"response_{key}", title, CAPTION, figure)
