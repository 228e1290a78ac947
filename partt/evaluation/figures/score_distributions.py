"""Score distributions, for jets of each true class."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from partt.evaluation.shown import class_colours, shown_classes
from partt.evaluation.summary import ClassificationSummary
from partt.pages.drawing import Drawing
from partt.pages.style import colour, grid_shape, line, panels, plain

CAPTION = "Each score for jets of all true classes; its own class is filled."


def draw_scores(summary: ClassificationSummary) -> Drawing:
    """Draw a panel for each score: its own class filled, other classes as lines."""
    import mplhep  # noqa: PLC0415 - takes seconds to import

    numbers = shown_classes(summary)
    names, shades = summary.class_names, class_colours(summary)
    num_panels = 1 if len(names) == 2 else len(numbers)
    rows, columns = grid_shape(num_panels)
    figure = Figure(figsize=(1.5 + 2.3 * columns, 1.4 + 2.2 * rows), layout="constrained")
    all_axes = panels(figure, num_panels, sharex=True, sharey=True)
    edges = np.linspace(0, 1, summary.histograms.shape[2] + 1)
    lowest = summary.histograms[summary.histograms > 0].min()
    for number, axes in zip(numbers, all_axes, strict=False):
        others = [truth for truth in numbers if truth != number]
        for truth in (number, *others):
            if summary.num_jets[names[truth]]:
                is_own = truth == number
                mplhep.histplot(
                    summary.histograms[truth, number],
                    edges,
                    ax=axes,
                    yerr=False,
                    color=colour(shades[names[truth]]),
                    linestyle=line(shades[names[truth]]),
                    histtype="fill" if is_own else "step",
                    alpha=0.45 if is_own else 1.0,
                    linewidth=1.1,
                    flow="none",
                )
        axes.set_yscale("log")
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_locator(FixedLocator([0, 0.5] if num_panels > 1 else [0, 0.5, 1]))
        axes.set_title(plain(f"score {names[number]}"))
    all_axes[0].set_ylim(lowest / 2, summary.histograms.max() * 2)
    figure.supxlabel("score")
    figure.supylabel("density of jets")
    _add_legend(figure, summary)
    return Drawing("scores", "Scores", CAPTION, figure)


def _add_legend(figure: Figure, summary: ClassificationSummary) -> None:
    shades = class_colours(summary)
    names = [summary.class_names[number] for number in shown_classes(summary)]
    present = [name for name in names if summary.num_jets[name]]
    handles = [
        Line2D([], [], color=colour(shades[name]), linestyle=line(shades[name]), linewidth=3)
        for name in present
    ]
    labels = [plain(name) for name in present]
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 10), title="true class")
