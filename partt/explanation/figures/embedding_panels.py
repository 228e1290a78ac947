"""The map of embeddings, coloured by class, mass and pT, and what linear fits find in it."""

import numpy as np
from matplotlib.figure import Figure

from partt.explanation.explanation_results import EmbeddingSummary
from partt.pages.drawing import Drawing
from partt.pages.style import COLOURS, MAX_DRAWN, colour, plain

MAX_POINTS = 4000


def draw_embedding(found: EmbeddingSummary, class_names: tuple[str, ...]) -> Drawing:
    """Draw the first two principal components of each jet, and R² of the fits."""
    num_panels = 2 + len(found.colours)
    figure = Figure(figsize=(4.6 * num_panels, 4.4), layout="constrained")
    all_axes = figure.subplots(1, num_panels)
    some = slice(None, None, max(1, -(-len(found.labels) // MAX_POINTS)))
    points, labels = found.map.components[some], found.labels[some]
    for number, name in list(enumerate(class_names))[:MAX_DRAWN]:
        own = labels == number
        if own.any():
            all_axes[0].scatter(
                *points[own].T, s=4, color=colour(number), label=plain(name), linewidths=0, rasterized=True
            )
    all_axes[0].legend(markerscale=3, fontsize=7.5, ncols=2, handletextpad=0.1, columnspacing=0.6)
    for axes, (name, values) in zip(all_axes[1:], found.colours.items(), strict=False):
        low, high = np.nanquantile(values, [0.02, 0.98])
        drawn = axes.scatter(
            *points.T, s=4, c=values[some], vmin=low, vmax=high, cmap="viridis", linewidths=0, rasterized=True
        )
        figure.colorbar(drawn, ax=axes, label=name)
    for axes in all_axes[:-1]:
        axes.set(xlabel=f"component 1 ({100 * found.map.variances[0]:.0f} % of the variance)",
                 ylabel=f"component 2 ({100 * found.map.variances[1]:.0f} %)")  # fmt: skip
    fits = {name: value for name, value in found.map.fits.items() if np.isfinite(value)}
    last = all_axes[-1]
    last.barh(range(len(fits)), [max(value, 0.0) for value in fits.values()], color=COLOURS[0])
    for place, value in enumerate(fits.values()):
        last.text(max(value, 0) + 0.01, place, f"{value:.2f}", va="center", fontsize=9)
    last.set_yticks(range(len(fits)), list(fits))
    last.tick_params(axis="y", which="both", length=0)
    last.minorticks_off()
    last.invert_yaxis()
    last.set(xlim=(0, 1.12), xlabel="R² of a linear fit")
    return Drawing(
        "embedding",
        "The embedding",
        f"Principal components of the {found.map.width} numbers that the last layer gets, and how well a "
        "linear function of them gives an observable of the jet (fitted to every second jet, R² on the "
        "others).",
        figure,
    )
