"""ROC curves: rejection against signal efficiency with 68 % bands; ratios when models are compared."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from partt.evaluation.summary import DiscriminantSummary
from partt.pages.drawing import Drawing
from partt.pages.style import arrange, colour, grid_shape, line, plain
from partt.scores.passing import Floats

Curves = Mapping[str, Mapping[str, DiscriminantSummary]]  # model -> discriminant
ZOOM = 0.9  # where the efficiency axis starts if no curve is below, else at 0
MAX_RATIO = 3.0
MIN_RATIO_JETS = 10  # background jets that pass in both models; no ratio with fewer
X_LABEL = r"signal efficiency $\epsilon_S$"
Y_LABEL = r"background rejection $1/\epsilon_B$"
CAPTION = (
    "Bands are 68 % intervals. A curve ends where no background jet passes. "
    "Point at a curve to read off its values."
)


def draw_roc(curves: Curves) -> Drawing:
    """Draw one model's curves in one panel, or several models in a panel for each discriminant.

    The hover data: positions and limits of the axes, and the points of the curves.
    """
    names = list(dict.fromkeys(name for model in curves.values() for name in model))
    figure, hovers = _draw_compared(curves, names) if len(curves) > 1 else _draw_one(curves, names)
    arrange(figure)
    hover = [_hover(axes, drawn) for axes, drawn in hovers]
    return Drawing("roc", "ROC curves", CAPTION, figure, hover)


_Drawn = list[tuple[str, str, DiscriminantSummary]]  # label, colour, what


def _draw_one(curves: Curves, names: Sequence[str]) -> tuple[Figure, list[tuple[Any, _Drawn]]]:
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    axes = figure.subplots()
    (model,) = curves.values()
    drawn: _Drawn = []
    for name in names:
        label, number = model[name].discriminant.title, model[name].class_number
        _draw_curve(axes, model[name], colour(number), line(number), label)
        drawn.append((label, colour(number), model[name]))
    _finish(axes)
    axes.set_xlabel(X_LABEL)
    axes.set_ylabel(Y_LABEL)
    axes.legend(ncols=1 if len(names) < 6 else 2)
    return figure, [(axes, drawn)]


def _draw_compared(curves: Curves, names: Sequence[str]) -> tuple[Figure, list[tuple[Any, _Drawn]]]:
    rows, columns = grid_shape(len(names))
    figure = Figure(figsize=(2 + 3.4 * columns, 0.8 + 3.6 * rows), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.01, wspace=0.03)  # type: ignore[union-attr,call-arg]
    outer = figure.add_gridspec(rows, columns)
    reference = next(iter(curves))
    found = []
    handles: dict[str, Any] = {}
    for index, name in enumerate(names):
        inner = outer[index // columns, index % columns].subgridspec(
            2, 1, height_ratios=(2.4, 1), hspace=0.04
        )
        axes = figure.add_subplot(inner[0])
        ratio = figure.add_subplot(inner[1], sharex=axes)
        drawn: _Drawn = []
        for number, (label, model) in enumerate(curves.items()):
            if name in model:
                handles[label] = _draw_curve(axes, model[name], colour(number), line(number), label)
                drawn.append((label, colour(number), model[name]))
                if name in curves[reference]:
                    _draw_ratio(ratio, model[name], curves[reference][name], colour(number), line(number))
        _finish(axes)
        axes.tick_params(labelbottom=False)
        axes.set_title(plain(drawn[0][2].discriminant.title))
        _finish_ratio(ratio)
        ratio.tick_params(labelbottom=index + columns >= len(names) or axes.get_xlim()[0] > 0)
        if index % columns == 0:
            axes.set_ylabel(Y_LABEL if rows == 1 else r"$1/\epsilon_B$")
            ratio.set_ylabel("ratio", loc="center")
        if index + columns >= len(names):
            ratio.set_xlabel(X_LABEL if columns == 1 else r"$\epsilon_S$")
        found.append((axes, drawn))
    legend = figure.legend(
        handles.values(), map(plain, handles), loc="outside upper center", ncols=min(len(handles), 4)
    )
    legend.set_title(f"ratio: to {plain(reference)}")
    return figure, found


def _draw_curve(axes: Any, one: DiscriminantSummary, shade: str, style: str, label: str) -> Any:
    points = one.curve
    is_known = points.is_finite
    axes.fill_between(
        points.asked[is_known],
        points.rejection_low[is_known],
        np.minimum(points.rejection_high[is_known], 1e9),
        color=shade,
        alpha=0.25,
        linewidth=0,
    )
    (handle,) = axes.plot(
        points.asked[is_known], points.rejection[is_known], color=shade, linestyle=style, label=plain(label)
    )
    return handle


def _draw_ratio(
    axes: Any, one: DiscriminantSummary, reference: DiscriminantSummary, shade: str, style: str
) -> None:
    points, other = one.curve, reference.curve
    is_known = np.minimum(points.num_passing, other.num_passing) >= MIN_RATIO_JETS
    is_known &= points.is_finite & other.is_finite

    def ratio(values: Floats) -> Floats:
        return values[is_known] / other.rejection[is_known]

    axes.fill_between(
        points.asked[is_known],
        ratio(points.rejection_low),
        np.minimum(ratio(points.rejection_high), 10 * MAX_RATIO),
        color=shade,
        alpha=0.2,
        linewidth=0,
    )
    axes.plot(points.asked[is_known], ratio(points.rejection), color=shade, linestyle=style)


def _finish(axes: Any) -> None:
    axes.set_yscale("log")
    first = min((line.get_xdata().min(initial=1.0) for line in axes.get_lines()), default=0.0)
    axes.set_xlim(ZOOM if ZOOM <= first < 1 else 0, 1)
    values = np.concatenate([np.ones(1), *(line.get_ydata() for line in axes.get_lines())])
    axes.set_ylim(1, 10 ** np.ceil(np.log10(max(values.max(initial=1.0), 1.0)) + 0.1))
    ticks = [0.9, 0.95, 1] if axes.get_xlim()[0] > 0 else [0, 0.2, 0.4, 0.6, 0.8, 1]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)


def _finish_ratio(axes: Any) -> None:
    values = np.concatenate([np.ones(1), *(line.get_ydata() for line in axes.get_lines())])
    axes.axhline(1.0, color="grey", linewidth=0.8, zorder=0)
    if len(values) == 1:
        text = f"fewer than {MIN_RATIO_JETS} background jets"
        axes.text(0.5, 0.2, text, transform=axes.transAxes, ha="center", fontsize=8, color="grey")
    axes.set_ylim(max(0.0, values.min() - 0.2), min(MAX_RATIO, values.max() + 0.2))


def _hover(axes: Any, drawn: _Drawn) -> dict[str, Any]:
    box = axes.get_position()
    return {
        "box": [
            round(value, 5) for value in (box.x0, 1 - box.y1, box.x1, 1 - box.y0)
        ],  # fractions, from the top left
        "x": list(axes.get_xlim()),
        "y": list(axes.get_ylim()),
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
                    if point[3] > 0 and math.isfinite(point[1])
                ],
            }
            for label, shade, one in drawn
        ],
    }
