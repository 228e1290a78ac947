"""Signal efficiency and background rejection at a working point, against an observer such as pT."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from partt.evaluation.summary import DiscriminantSummary
from partt.evaluation.working_points import BinnedEfficiency, Request
from partt.pages.drawing import Drawing
from partt.pages.style import MARKERS, colour, plain
from partt.scores.passing import Floats
from partt.scores.roc import invert

MAX_LINES = 60  # edges of bins that are drawn as lines
LABELS = {
    "jet_pt": r"jet $p_T$ [GeV]",
    "jet_eta": r"jet $\eta$",
    "jet_mass": r"jet mass [GeV]",
    "jet_sdmass": r"jet $m_{SD}$ [GeV]",
    "jet_nparticles": "particles in the jet",
}
CAPTION = (
    "At the first working point of each discriminant. Points in the same bin are drawn side by side; "
    "arrows are lower limits, where no background jet passes."
)


def axis_label(observer: str) -> str:
    """Return the label of an observer's axis."""
    return LABELS.get(observer, plain(observer))


def draw_dependence(discriminants: Mapping[str, DiscriminantSummary], observer: str, number: int) -> Drawing:
    """Draw efficiency and rejection of the first working point of each discriminant.

    The `number` of the observer names the files if its own name cannot.
    """
    figure = Figure(figsize=(7.2, 7.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.2))
    for position, one in enumerate(discriminants.values()):
        working_point = one.working_points[0]
        signal, background = working_point.signal_by[observer], working_point.background_by[observer]
        place = position - (len(discriminants) - 1) / 2
        style = {
            "color": colour(one.class_number),
            "marker": MARKERS[position % len(MARKERS)],
            "markersize": 4,
            "linestyle": "none",
            "linewidth": 1.2,
        }
        label = f"{plain(one.discriminant.title)}, {_spelled(working_point.point.request)}"
        centres = _centres(signal, place, len(discriminants))
        is_filled = ~np.isnan(signal.efficiency.value)
        value, low, high = (values[is_filled] for values in signal.efficiency)
        errors = np.maximum([value - low, high - value], 0)
        upper.errorbar(centres[is_filled], value, yerr=errors, label=label, **style)
        _draw_rejection(lower, background, centres, style)
    edges = signal.edges[observer]
    for axes in (upper, lower):
        for edge in edges[1:-1] if len(edges) <= MAX_LINES else ():
            axes.axvline(edge, color="#eeeeee", linewidth=0.8, zorder=0)
        axes.set_xlim(edges[0], edges[-1])
    upper.set_ylim(0, 1.05)
    upper.set_ylabel(r"signal efficiency $\epsilon_S$")
    shown = [
        value for one in discriminants.values() for value in _rejections(one, observer) if value < np.inf
    ]
    if shown:
        lower.set_yscale("log")
    else:
        lower.set_ylim(1, 10)  # nothing to show
    lower.set_ylabel(r"rejection $1/\epsilon_B$")
    lower.set_xlabel(axis_label(observer))
    figure.legend(loc="outside upper center", ncols=1 if len(discriminants) < 3 else 3, fontsize=8.5)
    name = observer if observer.isidentifier() else f"observer_{number}"
    title = f"Efficiency and rejection against {observer}"
    return Drawing(f"efficiency_{name}", title, CAPTION, figure)


def _centres(binned: BinnedEfficiency, place: float, num_places: int) -> Floats:
    """Return bin centres (B,), shifted so that points of different classes do not overlap."""
    (edges,) = binned.edges.values()
    widths = np.diff(edges)
    return (edges[:-1] + edges[1:]) / 2 + widths * 0.7 * place / max(num_places, 2)


def _draw_rejection(
    axes: Any, background: BinnedEfficiency, centres: Floats, style: Mapping[str, Any]
) -> None:
    """Draw rejections; an arrow is a lower limit, where nothing passes."""
    is_filled = ~np.isnan(background.efficiency.value)
    value, low, high = (values[is_filled] for values in background.efficiency)
    places, passes = centres[is_filled], value > 0
    rejection = invert(value)[passes]
    errors = [rejection - invert(high)[passes], invert(low)[passes] - rejection]
    axes.errorbar(places[passes], rejection, yerr=np.clip(errors, 0, 1e9), **style)
    limits = invert(high)[~passes]
    axes.errorbar(
        places[~passes], limits, yerr=0.4 * limits, lolims=True, capsize=2, **{**style, "marker": "none"}
    )


def _rejections(one: DiscriminantSummary, observer: str) -> Floats:
    """Return what is drawn for a discriminant: rejections, or their limits."""
    efficiency = one.working_points[0].background_by[observer].efficiency
    known = ~np.isnan(efficiency.value)
    return invert(np.where(efficiency.value > 0, efficiency.value, efficiency.high)[known])


def _spelled(request: Request) -> str:
    return rf"$\epsilon_{'S' if request.of == 'eps_s' else 'B'}$ = {request.efficiency:g}"
