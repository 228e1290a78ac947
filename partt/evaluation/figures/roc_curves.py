"""ROC curves: rejection against signal efficiency with 68 % bands; ratios when models are compared."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from partt.evaluation.figures.paired_panels import is_leftmost, is_lowest, paired_panels, say
from partt.evaluation.summary import DiscriminantSummary
from partt.pages.drawing import Drawing
from partt.pages.style import arrange, colour, line, plain
from partt.scores.passing import Floats
from partt.scores.roc import RocPoints

Curves = Mapping[str, Mapping[str, DiscriminantSummary]]  # model -> discriminant
HIGH = 0.95  # a discriminant quoted at this signal efficiency or above is shown close to 1
ZOOM = (0.9, 0.999)  # the range of that axis, linear in -log10(1 - efficiency)
ZOOM_TICKS = (0.9, 0.95, 0.99, 0.995, 0.999)
MAX_RATIO = 3.0
BAND = 0.25  # opacity of bands; less where more than six would lie upon each other
MIN_RATIO_JETS = 10  # background jets that pass in both models; no ratio with fewer
X_LABEL = r"signal efficiency $\epsilon_S$"
Y_LABEL = r"background rejection $1/\epsilon_B$"
CAPTION = (
    "Bands are 68 % intervals, points the efficiencies of the results table. A curve ends where no "
    "background jet passes. Discriminants that are quoted at 95 % or more have an axis that stretches "
    "efficiencies close to 1. Point at a curve to read off its values."
)


def draw_roc(curves: Curves) -> Drawing:
    """Draw one model's curves together, or several models in a panel for each discriminant.

    The hover data: positions and limits of the axes, and the points of the curves.
    """
    names = list(dict.fromkeys(name for model in curves.values() for name in model))
    figure, hovers = _draw_compared(curves, names) if len(curves) > 1 else _draw_one(curves, names)
    arrange(figure)
    hover = [_hover(axes, drawn, is_zoomed=is_zoomed) for axes, drawn, is_zoomed in hovers]
    return Drawing("roc", "ROC curves", CAPTION, figure, hover)


_Drawn = list[tuple[str, str, DiscriminantSummary]]  # label, colour, what
_Panel = tuple[Any, _Drawn, bool]  # axes, curves, whether it is zoomed


def _is_high(one: DiscriminantSummary) -> bool:
    return min(one.discriminant.efficiencies) >= HIGH


def _starts_high(one: DiscriminantSummary) -> bool:
    """Tell whether no background jet passes at lower efficiencies."""
    finite = one.curve.asked[one.curve.is_finite]
    return len(finite) > 0 and bool(finite.min() >= ZOOM[0])


def _draw_one(curves: Curves, names: Sequence[str]) -> tuple[Figure, list[_Panel]]:
    """Draw all curves in a panel, and beside it those that are quoted at high efficiencies."""
    (model,) = curves.values()
    high = [name for name in names if _is_high(model[name]) or _starts_high(model[name])]
    figure = Figure(figsize=(12.4 if high else 7.2, 5.6), layout="constrained")
    all_axes = figure.subplots(1, 2 if high else 1, squeeze=False)[0]
    found = []
    for axes, shown, is_zoomed in zip(all_axes, (names, high), (False, True), strict=False):
        drawn: _Drawn = []
        for name in shown:
            label, number = model[name].discriminant.title, model[name].class_number
            shade, band = colour(number), BAND * min(1.0, 6 / len(shown))
            _draw_curve(axes, model[name], shade, line(number), label, is_zoomed=is_zoomed, band=band)
            drawn.append((label, shade, model[name]))
        _finish(axes, is_zoomed=is_zoomed)
        axes.set_xlabel(X_LABEL)
        axes.set_ylabel(Y_LABEL)
        axes.legend(ncols=1 if len(shown) < 6 else 2)
        found.append((axes, drawn, is_zoomed))
    return figure, found


def _draw_compared(curves: Curves, names: Sequence[str]) -> tuple[Figure, list[_Panel]]:
    figure, pairs = paired_panels(len(names))
    reference = next(iter(curves))
    found = []
    handles: dict[str, Any] = {}
    for index, (name, (axes, ratio)) in enumerate(zip(names, pairs, strict=True)):
        models = {label: model[name] for label, model in curves.items() if name in model}
        is_zoomed = _is_high(next(iter(models.values()))) or all(map(_starts_high, models.values()))
        drawn: _Drawn = []
        for number, label in enumerate(curves):
            if label not in models:
                continue
            one, shade, dash = models[label], colour(number), line(number)
            level = 2.0 + len(curves) - number  # the reference on top
            handles[label] = _draw_curve(axes, one, shade, dash, label, is_zoomed=is_zoomed, level=level)
            drawn.append((label, shade, one))
            if reference in models:
                _draw_ratio(ratio, one, models[reference], shade, dash, is_zoomed=is_zoomed, level=level)
        _finish(axes, is_zoomed=is_zoomed)
        axes.set_title(plain(drawn[0][2].discriminant.title))
        _finish_ratio(ratio)
        if is_leftmost(index, len(names)):
            axes.set_ylabel(r"$1/\epsilon_B$")
            ratio.set_ylabel("ratio", loc="center")
        if is_lowest(index, len(names)):
            ratio.set_xlabel(X_LABEL)
        found.append((axes, drawn, is_zoomed))
    ordered = [name for name in curves if name in handles]
    legend = figure.legend(
        [handles[name] for name in ordered],
        map(plain, ordered),
        loc="outside upper center",
        ncols=min(len(ordered), 4),
    )
    legend.set_title(f"ratio to {plain(reference)}")
    return figure, found


def _places(efficiencies: Floats, *, is_zoomed: bool) -> Floats:
    """Return where efficiencies are on the axis."""
    return -np.log10(1 - np.minimum(efficiencies, 1 - 1e-9)) if is_zoomed else efficiencies


def _in_range(points: RocPoints, *, is_zoomed: bool) -> npt.NDArray[np.bool_]:
    if not is_zoomed:
        return points.is_finite
    return points.is_finite & (points.asked >= ZOOM[0]) & (points.asked <= ZOOM[1])


def _draw_curve(
    axes: Any,
    one: DiscriminantSummary,
    shade: str,
    style: str,
    label: str,
    *,
    is_zoomed: bool = False,
    level: float = 2.0,
    band: float = BAND,
) -> Any:
    points = one.curve
    is_known = _in_range(points, is_zoomed=is_zoomed)
    places = _places(points.asked[is_known], is_zoomed=is_zoomed)
    axes.fill_between(
        places,
        points.rejection_low[is_known],
        np.minimum(points.rejection_high[is_known], 1e9),
        color=shade,
        alpha=band,
        linewidth=0,
        zorder=level - 1,
    )
    (handle,) = axes.plot(
        places, points.rejection[is_known], color=shade, linestyle=style, label=plain(label), zorder=level
    )
    quoted = one.rejections
    shown = _in_range(quoted, is_zoomed=is_zoomed)
    axes.plot(
        _places(quoted.asked[shown], is_zoomed=is_zoomed),
        quoted.rejection[shown],
        "o",
        color=shade,
        markersize=4,
        zorder=level,
    )
    return handle


def _draw_ratio(
    axes: Any,
    one: DiscriminantSummary,
    reference: DiscriminantSummary,
    shade: str,
    style: str,
    *,
    is_zoomed: bool,
    level: float,
) -> None:
    points, other = one.curve, reference.curve
    is_known = np.minimum(points.num_passing, other.num_passing) >= MIN_RATIO_JETS
    is_known &= _in_range(points, is_zoomed=is_zoomed) & _in_range(other, is_zoomed=is_zoomed)
    places = _places(points.asked[is_known], is_zoomed=is_zoomed)

    def ratio(values: Floats) -> Floats:
        return values[is_known] / other.rejection[is_known]

    axes.fill_between(
        places,
        ratio(points.rejection_low),
        np.minimum(ratio(points.rejection_high), 10 * MAX_RATIO),
        color=shade,
        alpha=0.2,
        linewidth=0,
        zorder=level - 1,
    )
    axes.plot(places, ratio(points.rejection), color=shade, linestyle=style, zorder=level)


def _finish(axes: Any, *, is_zoomed: bool) -> None:
    axes.set_yscale("log")
    values = np.concatenate([np.ones(1), *(line.get_ydata() for line in axes.get_lines())])
    if len(values) == 1:
        say(axes, "no background jet passes")
    axes.set_ylim(1, 10 ** np.ceil(np.log10(max(values.max(initial=1.0), 1.0)) + 0.1))
    if is_zoomed:
        ends = _places(np.array(ZOOM), is_zoomed=True)
        axes.set_xlim(*ends)
        places = _places(np.array(ZOOM_TICKS), is_zoomed=True)
        axes.xaxis.set_major_locator(FixedLocator(places.tolist()))
        axes.xaxis.set_major_formatter(FixedFormatter([f"{value:g}" for value in ZOOM_TICKS]))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_locator(FixedLocator([0, 0.2, 0.4, 0.6, 0.8, 1]))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)


def _finish_ratio(axes: Any) -> None:
    values = np.concatenate([np.ones(1), *(line.get_ydata() for line in axes.get_lines())])
    if len(values) == 1:
        say(axes, f"fewer than {MIN_RATIO_JETS} background jets")
    else:
        axes.axhline(1.0, color="grey", linewidth=0.8, zorder=0)
    axes.set_ylim(max(0.0, values.min() - 0.2), min(MAX_RATIO, values.max() + 0.2))


def _hover(axes: Any, drawn: _Drawn, *, is_zoomed: bool) -> dict[str, Any]:
    box = axes.get_position()
    return {
        "box": [
            round(value, 5) for value in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)
        ],  # fractions, from the top left
        "x": list(axes.get_xlim()),
        "y": list(axes.get_ylim()),
        "zoomed": is_zoomed,
        "curves": [
            {
                "label": label,
                "colour": shade,
                "points": [
                    [float(f"{value:.6g}") for value in point]
                    for point in zip(
                        one.curve.asked,
                        one.curve.rejection,
                        one.curve.thresholds,
                        one.curve.num_passing,
                        strict=True,
                    )
                    if point[3] > 0
                    and math.isfinite(point[1])
                    and (not is_zoomed or ZOOM[0] <= point[0] <= ZOOM[1])
                ],
            }
            for label, shade, one in drawn
        ],
    }
