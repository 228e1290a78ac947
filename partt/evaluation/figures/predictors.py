"""What figures of regressions share: colours of models and baselines, panels, names of axes and files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from partt.evaluation.figures.observer_dependence import LABELS
from partt.evaluation.regression_table import Predictor, TargetResults
from partt.pages.style import MARKERS, MAX_DRAWN, colour, grid_shape, panels, plain
from partt.scores.passing import Floats

GREYS = ("#333333", "#888888", "#bbbbbb")  # of baselines
DASHES = ("--", ":", "-.")


@dataclass(frozen=True)
class Style:
    """How the lines and points of a predictor are drawn."""

    colour: str
    line: str
    marker: str

    @property
    def points(self) -> dict[str, Any]:
        """Options of points with errors."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markersize": 4,
            "linestyle": "none",
            "linewidth": 1.2,
        }


def drawn_predictors(target: TargetResults) -> list[tuple[Predictor, Style]]:
    """Return what figures show: the first models in colours, then the first baselines in greys, dashed."""
    models = [one for one in target.predictors if one.regression is not None][:MAX_DRAWN]
    baselines = [one for one in target.predictors if one.regression is None][: len(GREYS)]
    return [
        *((one, Style(colour(i), "-", MARKERS[i % len(MARKERS)])) for i, one in enumerate(models)),
        *((one, Style(GREYS[i], DASHES[i], "x+1"[i])) for i, one in enumerate(baselines)),
    ]


def drawn_groups(target: TargetResults) -> list[str]:
    """Return the groups of jets with panels of their own: all, then the first classes that have jets."""
    filled = target.main.prediction.resolution.num_jets > 0
    names = [name for name, has_jets in zip(target.main.groups, filled, strict=True) if has_jets]
    return names[:MAX_DRAWN]


def group_panels(groups: Sequence[str], width: float, height: float) -> tuple[Figure, list[tuple[Any, str]]]:
    """Return a figure, and a panel with a title for each group of jets; sizes of a panel are in inches."""
    rows, columns = grid_shape(len(groups))
    figure = Figure(figsize=(1.6 + width * columns, 1.5 + height * rows), layout="constrained")
    drawn = list(zip(panels(figure, len(groups), sharex=True), groups, strict=True))
    for axes, group in drawn:
        axes.set_title(plain(group))
    return figure, drawn


def file_key(name: str, kind: str, number: int) -> str:
    """Return a name for files: the name itself, if it is short and plain."""
    return name if re.fullmatch(r"[A-Za-z0-9_]{1,60}", name) else f"{kind}_{number}"


def quantity_label(target: TargetResults, what: str) -> str:
    """Return the label of an axis with values of the target, or of the variable that it corrects."""
    task = target.main.task
    if task.factor_of:
        return f"{what} {LABELS.get(task.factor_of, plain(task.factor_of))}"
    unit = f" [{plain(task.unit)}]" if task.unit else ""
    return f"{what} {plain(task.target)}{unit}"


def response_label(target: TargetResults) -> str:
    """Return the label of an axis with responses, or residuals."""
    return "prediction / true value" if target.plan.is_ratio else quantity_label(target, "residual of")


def add_legend(figure: Figure, target: TargetResults, *further: tuple[str, Any], points: bool) -> None:
    """Add a legend of all predictors above the panels."""
    handles = [handle for _, handle in further]
    labels = [label for label, _ in further]
    for predictor, style in drawn_predictors(target):
        options: dict[str, Any] = (
            {"marker": style.marker, "linestyle": "none", "markersize": 5}
            if points
            else {"linestyle": style.line, "linewidth": 1.8}
        )
        handles.append(Line2D([], [], color=style.colour, **options))
        labels.append(plain(predictor.title))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 4))


def shifted_centres(edges: Floats, place: float, num_places: int) -> Floats:
    """Return bin centres (B,), shifted so that points of different predictors do not overlap."""
    centres: Floats = (edges[:-1] + edges[1:]) / 2 + np.diff(edges) * 0.6 * place / max(num_places, 2)
    return centres
