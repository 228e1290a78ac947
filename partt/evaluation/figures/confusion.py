"""Confusion matrix: which class has the highest score, for jets of each true class."""

import math

from matplotlib.figure import Figure

from partt.evaluation.summary import ClassificationSummary
from partt.pages.drawing import Drawing
from partt.pages.style import MAX_DRAWN, plain

CAPTION = "The class with the highest score. Rows add up to 100 %."


def draw_confusion(summary: ClassificationSummary) -> Drawing:
    """Draw the matrix in per cent of each row; classes without jets have no row."""
    names = summary.class_names
    fractions = summary.predictions.normalised
    present = [number for number, name in enumerate(names) if not math.isnan(fractions[number, 0])]
    shown = fractions[present]
    width, height = (0.5 * min(number, MAX_DRAWN) for number in (len(names), len(present)))
    figure = Figure(figsize=(3.0 + width, 1.4 + height), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(100 * shown, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for row in range(len(present) if len(names) <= MAX_DRAWN else 0):  # more numbers would overlap
        for column in range(len(names)):
            percent = 100 * shown[row, column]
            text = f"{percent:.1f}" if percent >= 0.05 else "0"
            shade = "white" if percent > 55 else "black" if percent >= 1 else "#777777"
            axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=9)
    rotation = 45 if max(map(len, names)) > 4 else 0
    every = -(-len(names) // (2 * MAX_DRAWN))  # of the classes has its name at the axes
    axes.set_xticks(
        range(0, len(names), every),
        map(plain, names[::every]),
        rotation=rotation,
        ha="right" if rotation else "center",
    )
    axes.set_yticks(range(0, len(present), every), [plain(names[number]) for number in present[::every]])
    axes.tick_params(which="both", length=0, labelsize=10 if len(names) <= MAX_DRAWN else 7)
    axes.minorticks_off()
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    figure.colorbar(image, ax=axes, label="% of true class", pad=0.02).ax.minorticks_off()
    return Drawing("confusion", "Confusion matrix", CAPTION, figure)
