"""Confusion matrix: which class has the highest score, for jets of each true class."""

import math

import numpy as np
from matplotlib.figure import Figure

from partt.evaluation.shown import shown_classes
from partt.evaluation.summary import ClassificationSummary
from partt.pages.drawing import Drawing
from partt.pages.style import plain

CAPTION = "The class with the highest score. Rows add up to 100 %"


def draw_confusion(summary: ClassificationSummary) -> Drawing:
    """Draw the matrix in per cent of each row; classes without jets have no row."""
    chosen = shown_classes(summary)
    names = [summary.class_names[number] for number in chosen]
    fractions = summary.predictions.normalised
    present = [number for number in chosen if not math.isnan(fractions[number, 0])]
    shown = fractions[np.ix_(present, chosen)]
    figure = Figure(figsize=(3.0 + 0.5 * len(names), 1.4 + 0.5 * len(present)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(100 * shown, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for row in range(len(present)):
        for column in range(len(names)):
            percent = 100 * shown[row, column]
            text = f"{percent:.1f}" if percent >= 0.05 else "0"
            shade = "white" if percent > 55 else "black" if percent >= 1 else "#777777"
            axes.text(column, row, text, ha="center", va="center", color=shade, fontsize=9)
    rotation = 45 if max(map(len, names)) > 4 else 0
    axes.set_xticks(
        range(len(names)), map(plain, names), rotation=rotation, ha="right" if rotation else "center"
    )
    axes.set_yticks(range(len(present)), [plain(summary.class_names[number]) for number in present])
    axes.tick_params(which="both", length=0, labelsize=10)
    axes.minorticks_off()
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    figure.colorbar(image, ax=axes, label="% of true class", pad=0.02).ax.minorticks_off()
    num_classes = len(summary.class_names)
    some = "." if len(names) == num_classes else f" with all {num_classes} classes; {len(names)} are shown."
    return Drawing("confusion", "Confusion matrix", CAPTION + some, figure)
