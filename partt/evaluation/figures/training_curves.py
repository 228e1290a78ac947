"""Training curves: losses and metrics over the epochs of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from partt.pages.drawing import Drawing
from partt.pages.style import colour

PANELS = (
    ("loss", ("train_loss", "validation_loss")),
    ("accuracy, AUC", ("train_accuracy", "validation_accuracy", "validation_auc")),
)


CAPTION = "Losses and metrics of the run."


def draw_training(epochs: Sequence[Mapping[str, Any]]) -> Drawing:
    """Draw the epochs, lines of metrics.jsonl."""
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    numbers = [line["epoch"] + 1 for line in epochs]
    best = [line["epoch"] + 1 for line in epochs if line.get("is_best")]
    for axes, (title, names) in zip(figure.subplots(1, 2), PANELS, strict=True):
        for number, name in enumerate(names):
            values = [line.get(name) for line in epochs]
            if any(value is not None for value in values):
                points = [float("nan") if value is None else value for value in values]
                label = name.replace("_", " ").replace("auc", "AUC")
                axes.plot(numbers, points, marker="o", markersize=3, color=colour(number), label=label)
        if best:
            axes.axvline(best[-1], color="grey", linestyle=":", label=f"best epoch: {best[-1]}")
        axes.set_xlabel("epoch")
        axes.set_ylabel(title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.minorticks_off()
        axes.legend()
    return Drawing("training", "Training", CAPTION, figure)
