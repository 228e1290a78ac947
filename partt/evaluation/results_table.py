"""The results table of a paper: models as rows; accuracy, AUC and rejections, with errors, as columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from partt.evaluation.summary import ClassificationSummary, Summary
from partt.pages.number_text import Cell
from partt.scores.presets import QuotedDiscriminant

MAX_COLUMNS = 16


@dataclass(frozen=True)
class TableColumn:
    """One number of each model."""

    metric: Literal["accuracy", "auc", "rejection"]
    discriminant: QuotedDiscriminant | None = None
    efficiency: float | None = None

    @property
    def title(self) -> str:
        """The heading."""
        if self.discriminant is None or self.efficiency is None:
            return {"accuracy": "Accuracy", "auc": "AUC"}.get(self.metric, self.metric)
        return f"{self.discriminant.signal} Rej {100 * self.efficiency:g}%"

    @property
    def short_title(self) -> str:
        """The heading below a common one for all rejections."""
        return self.title.replace(" Rej ", " ") if self.metric == "rejection" else self.title


@dataclass(frozen=True)
class Row:
    """The numbers of one model; None where there is no result."""

    model: str
    cells: tuple[Cell | None, ...]
    num_seeds: int = 1
    num_jets: int | None = None
    source: str = ""  # of published numbers


@dataclass(frozen=True)
class ResultsTable:
    """All models."""

    columns: tuple[TableColumn, ...]
    rows: tuple[Row, ...]

    @property
    def is_upright(self) -> bool:
        """Whether numbers should be lines and models columns: many classes are too wide for a page."""
        return len(self.columns) > MAX_COLUMNS


def make_table(
    discriminants: Sequence[QuotedDiscriminant], models: Mapping[str, Sequence[Summary]]
) -> ResultsTable:
    """Make the table of models, each with the summaries of its seeds; models without classes have no row."""
    by_model = {
        name: [seed.classification for seed in seeds if seed.classification] for name, seeds in models.items()
    }
    columns = (
        TableColumn("accuracy"),
        TableColumn("auc"),
        *(TableColumn("rejection", one, value) for one in discriminants for value in one.efficiencies),
    )
    rows = [
        Row(
            model=name,
            cells=tuple(combined([_cell(seed, column) for seed in seeds]) for column in columns),
            num_seeds=len(seeds),
            num_jets=sum(seeds[0].num_jets.values()),
        )
        for name, seeds in by_model.items()
        if seeds
    ]
    return ResultsTable(columns, tuple(rows))


def _cell(summary: ClassificationSummary, column: TableColumn) -> Cell | None:
    if column.metric == "accuracy":
        return _symmetric(summary.predictions.accuracy, summary.spread.accuracy)
    if column.metric == "auc":
        return None if math.isnan(summary.area) else _symmetric(summary.area, summary.spread.area)
    if column.discriminant is None or column.discriminant.name not in summary.discriminants:
        return None
    points = summary.discriminants[column.discriminant.name].rejections
    number = int(np.flatnonzero(points.asked == column.efficiency)[0])
    passing = int(points.num_passing[number])
    value, low, high = (
        float(values[number]) for values in (points.rejection, points.rejection_low, points.rejection_high)
    )
    if math.isinf(value):
        return Cell(low, low, math.inf, num_background=passing, is_limit=True)
    return Cell(value, low, high, num_background=passing)


def _symmetric(value: float, error: float) -> Cell:
    return Cell(value, value - error, value + error)


def combined(seeds: Sequence[Cell | None]) -> Cell | None:
    """Return median and standard deviation of seeds; if one has only a limit, the lowest end of all."""
    known = [seed for seed in seeds if seed is not None]
    if len(known) < 2:
        return known[0] if known else None
    passing = [seed.num_background for seed in known if seed.num_background is not None]
    num_background = round(float(np.mean(passing))) if passing else None
    if any(seed.is_limit for seed in known):
        lowest = min(seed.low for seed in known)
        return Cell(lowest, lowest, math.inf, num_background=num_background, is_limit=True)
    return Cell(
        float(np.median([seed.value for seed in known])),
        float(np.median([seed.low for seed in known])),
        float(np.median([seed.high for seed in known])),
        float(np.std([seed.value for seed in known], ddof=1)),
        num_background,
    )
