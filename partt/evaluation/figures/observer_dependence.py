"""Signal efficiency and background rejection at a working point, against an observer such as pT."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter, NullLocator

from partt.evaluation.figures.paired_panels import is_leftmost, is_lowest, paired_panels, say
from partt.evaluation.summary import DiscriminantSummary
from partt.evaluation.working_points import BinnedEfficiency, Request
from partt.pages.drawing import Drawing
from partt.pages.style import colour, plain
from partt.scores.passing import Floats
from partt.scores.roc import invert

LABELS = {
    "jet_pt": r"jet $p_T$ [GeV]",
    "jet_eta": r"jet $\eta$",
    "jet_mass": r"jet mass [GeV]",
    "jet_sdmass": r"jet $m_{SD}$ [GeV]",
    "jet_nparticles": "particles in the jet",
}
CAPTION = (
    "At the first working point of each discriminant, whose efficiency for all jets is the dashed line. "
    "Arrows are lower limits, where no background jet passes."
)


def axis_label(observer: str) -> str:
    """Return the label of an observer's axis."""
    return LABELS.get(observer, plain(observer))


def draw_dependence(discriminants: Mapping[str, DiscriminantSummary], observer: str, number: int) -> Drawing:
    """Draw efficiency and rejection of the first working point of each discriminant.

    The `number` of the observer names the files if its own name cannot.
    """
    figure, pairs = paired_panels(len(discriminants), lower=1.0)
    for index, (one, (upper, lower)) in enumerate(zip(discriminants.values(), pairs, strict=True)):
        working_point = one.working_points[0]
        signal, background = working_point.signal_by[observer], working_point.background_by[observer]
        edges = signal.edges[observer]
        centres, halves = (edges[:-1] + edges[1:]) / 2, np.diff(edges) / 2
        style = {
            "color": colour(one.class_number),
            "marker": "o",
            "markersize": 4,
            "linestyle": "none",
            "linewidth": 1.2,
        }
        is_filled = ~np.isnan(signal.efficiency.value)
        value, low, high = (values[is_filled] for values in signal.efficiency)
        errors = np.maximum([value - low, high - value], 0)
        upper.errorbar(centres[is_filled], value, xerr=halves[is_filled], yerr=errors, **style)
        upper.axhline(signal.overall, color="grey", linewidth=0.8, linestyle="--", zorder=0)
        _draw_rejection(lower, background, centres, halves, style)
        _set_ranges(upper, lower, signal, background)
        upper.set_xlim(edges[0], edges[-1])
        upper.xaxis.set_minor_locator(NullLocator())
        upper.set_title(f"{plain(one.discriminant.title)}, {spelled(working_point.point.request)}")
        if is_leftmost(index, len(discriminants)):
            upper.set_ylabel(r"$\epsilon_S$", loc="center")
            lower.set_ylabel(r"$1/\epsilon_B$", loc="center")
        if is_lowest(index, len(discriminants)):
            lower.set_xlabel(axis_label(observer))
    name = observer if observer.isidentifier() else f"observer_{number}"
    title = f"Efficiency and rejection against {observer}"
    return Drawing(f"efficiency_{name}", title, CAPTION, figure)


def _set_ranges(upper: Any, lower: Any, signal: BinnedEfficiency, background: BinnedEfficiency) -> None:
    """Set the y axes: efficiencies from 0, or close to 1 if all are; rejections on a logarithmic axis."""
    known = signal.efficiency.low[~np.isnan(signal.efficiency.low)]
    upper.set_ylim(0.85 if len(known) and known.min() > 0.9 else 0, 1.05)
    rejections = _rejections(background)
    if len(rejections):
        lower.set_yscale("log")
        decades = np.floor(np.log10(rejections.min() / 1.5)), np.ceil(np.log10(rejections.max() * 2.5))
        lower.set_ylim(10 ** max(decades[0], 0.0), 10 ** decades[1])  # two labels or more
        lower.yaxis.set_minor_formatter(NullFormatter())
    else:
        lower.set_ylim(1, 10)
        say(lower, "no background jets")


def _draw_rejection(
    axes: Any, background: BinnedEfficiency, centres: Floats, halves: Floats, style: Mapping[str, Any]
) -> None:
    """Draw rejections; an arrow is a lower limit, where nothing passes."""
    is_filled = ~np.isnan(background.efficiency.value)
    value, low, high = (values[is_filled] for values in background.efficiency)
    places, widths, passes = centres[is_filled], halves[is_filled], value > 0
    rejection = invert(value)[passes]
    errors = [rejection - invert(high)[passes], invert(low)[passes] - rejection]
    axes.errorbar(places[passes], rejection, xerr=widths[passes], yerr=np.clip(errors, 0, 1e9), **style)
    limits = invert(high)[~passes]
    axes.errorbar(
        places[~passes],
        limits,
        xerr=widths[~passes],
        yerr=0.4 * limits,
        lolims=True,
        capsize=2,
        **{**style, "marker": "none"},
    )


def _rejections(background: BinnedEfficiency) -> Floats:
    """Return what is drawn: rejections, or their limits."""
    efficiency = background.efficiency
    known = ~np.isnan(efficiency.value)
    found = invert(np.where(efficiency.value > 0, efficiency.value, efficiency.high)[known])
    return found[found < np.inf]


def spelled(request: Request) -> str:
    """Return a working point as mathematics."""
    return rf"$\epsilon_{'S' if request.of == 'eps_s' else 'B'}$ = {request.efficiency:g}"
