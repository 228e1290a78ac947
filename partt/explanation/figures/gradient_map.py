"""Colours: integrated gradients by class and feature."""

import numpy as np
from matplotlib.figure import Figure

from partt.explanation.explanation_results import GradientSummary
from partt.explanation.figures.colour_table import colour_table
from partt.pages.drawing import Drawing


def draw_gradients(found: GradientSummary, class_names: tuple[str, ...]) -> Drawing:
    """Draw the mean |IG| of each feature for the jets of each class."""
    filled = np.flatnonzero(found.num_jets)
    values = found.means[filled]
    rows = [class_names[number] for number in filled]
    size = (2.5 + 0.55 * len(found.features), 1.8 + 0.38 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = colour_table(axes, values, rows, found.features, digits=".1f", cmap="Blues", vmin=0)
    figure.colorbar(image, ax=axes, label="mean of Σ |IG| of a jet", pad=0.01)
    background = " + ".join(found.background)
    return Drawing(
        "gradients",
        "Integrated gradients",
        f"How much each feature moves a jet's own ln(s_S / s_{background}) (of background jets: "
        "ln(s_B / s_others)) on the way from a background jet without details, sum over particles of "
        "absolute values, mean over jets of the class in the row.",
        figure,
    )
