"""Mass sculpting: the mass of the background before and after a cut on the discriminant."""

from collections.abc import Mapping

import mplhep
from matplotlib.figure import Figure

from partt.evaluation.figures.observer_dependence import axis_label
from partt.evaluation.sculpting import MIN_PASSING, Sculpting
from partt.evaluation.summary import DiscriminantSummary
from partt.pages.drawing import Drawing
from partt.pages.style import colour, grid_shape, panels, plain

CAPTION = (
    "Background before and after the first working point of each discriminant, where "
    f"{MIN_PASSING} jets or more pass. Jensen-Shannon distance: 0 equal, 1 without overlap; chance: the mean "
    "distance of as many jets without any sculpting."
)


def draw_mass(discriminants: Mapping[str, DiscriminantSummary]) -> Drawing | None:
    """Draw a panel for each discriminant that passes enough background; None if none does."""
    shown = [(one, one.sculpting) for one in discriminants.values() if one.sculpting]
    if not shown:
        return None
    rows, columns = grid_shape(len(shown))
    figure = Figure(figsize=(1.6 + 3.0 * columns, 1.2 + 2.2 * rows), layout="constrained")
    for axes, (one, sculpting) in zip(panels(figure, len(shown), sharex=True), shown, strict=True):
        mplhep.histplot(
            sculpting.before,
            sculpting.edges,
            ax=axes,
            histtype="fill",
            color="#cccccc",
            label="all",
            flow="none",
        )
        mplhep.histplot(
            sculpting.after,
            sculpting.edges,
            ax=axes,
            histtype="step",
            yerr=False,
            color=colour(one.class_number),
            linewidth=1.6,
            label=f"after cut: {sculpting.num_passing:,}",
            flow="none",
        )
        axes.set_title(plain(one.discriminant.title))
        axes.set_xlim(sculpting.edges[0], sculpting.edges[-1])
        axes.set_ylim(0, 1.35 * max(sculpting.before.max(), sculpting.after.max()))
        axes.legend(loc="upper right", fontsize=8.5, title=_distance(sculpting), title_fontsize=8.5)
    figure.supxlabel(axis_label(shown[0][1].observer), fontsize=12)
    figure.supylabel("fraction of background jets", fontsize=12)
    return Drawing("mass", "Mass sculpting", CAPTION, figure)


def _distance(sculpting: Sculpting) -> str:
    return f"JS distance {sculpting.distance:.2f} (chance: {sculpting.distance_by_chance:.2f})"
