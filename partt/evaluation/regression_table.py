"""Tables of regressions: for each target, models and baselines side by side; bias, width and coverage."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from partt.evaluation.resolutions import Resolution
from partt.evaluation.responses import (
    ALL_JETS,
    HIGHEST_SCORE,
    BinnedResolution,
    RegressionSummary,
    ResponsePlan,
    ResponseSummary,
    target_title,
)
from partt.evaluation.results_table import combined
from partt.evaluation.summary import Summary
from partt.pages.number_text import Cell
from partt.scores.intervals import Interval

TRUE_VALUE = "true value"


@dataclass(frozen=True, eq=False)
class Predictor:
    """A regression of a model, or a baseline: one line of a figure, two columns of a table."""

    title: str
    groups: tuple[str, ...]  # of jets: all, then the classes of the model
    seeds: tuple[ResponseSummary, ...]
    model: str = ""  # empty: a baseline
    name: str = ""  # of the regression, or of the variable
    regression: RegressionSummary | None = None  # the first seed; None: a baseline

    @property
    def first(self) -> ResponseSummary:
        """The responses of the first seed."""
        return self.seeds[0]


@dataclass(frozen=True, eq=False)
class TargetResults:
    """A target, and all that predicts it."""

    title: str
    plan: ResponsePlan
    main: RegressionSummary  # of the first model that has it
    predictors: tuple[Predictor, ...]  # models, then baselines
    is_weighted: bool


@dataclass(frozen=True)
class Place:
    """Which jets: all or a class, in a bin of an observer or everywhere."""

    group: str
    observer: str = ""
    low: float = math.nan
    high: float = math.nan

    @property
    def title(self) -> str:
        """The heading of a row."""
        where = f"{self.observer} {self.low:g} to {self.high:g}" if self.observer else ""
        if not where:
            return self.group
        return where if self.group == ALL_JETS else f"{self.group}, {where}"


@dataclass(frozen=True)
class ResponseRow:
    """Bias and width of each predictor for some jets."""

    place: Place
    num_jets: tuple[int, ...]
    biases: tuple[Cell | None, ...]
    widths: tuple[Cell | None, ...]


@dataclass(frozen=True)
class CoverageRow:
    """A fraction of true values, or a number of the pulls, beside what it should be."""

    predictor: int  # its position
    metric: str  # below, inside, pull_median, pull_width
    group: str
    expected: float
    cell: Cell | None

    @property
    def title(self) -> str:
        """Its name for readers."""
        return {
            "below": f"true value below the {100 * self.expected:g} % quantile",
            "inside": f"true value inside the {100 * self.expected:.3g} % interval",
            "pull_median": "median of the pulls",
            "pull_width": "width of the pulls",
        }[self.metric]


@dataclass(frozen=True, eq=False)
class RegressionTable:
    """All numbers of a target that tables show."""

    target: str
    is_ratio: bool
    unit: str
    predictors: tuple[Predictor, ...]
    rows: tuple[ResponseRow, ...]
    coverage: tuple[CoverageRow, ...] = field(default=())


def find_targets(models: Mapping[str, Sequence[Summary]]) -> list[TargetResults]:
    """Return the targets of all models in the order of appearance, each with what predicts it."""
    mains: dict[str, RegressionSummary] = {}
    predictors: dict[str, list[Predictor]] = {}
    baselines: dict[str, dict[str, Predictor]] = {}
    for model, seeds in models.items():
        titles = [target_title(found.task) for found in seeds[0].regressions.values()]
        for name, found in seeds[0].regressions.items():
            title = target_title(found.task)
            mains.setdefault(title, found)
            all_seeds = [seed.regressions[name] for seed in seeds if name in seed.regressions]
            predictors.setdefault(title, []).append(
                Predictor(
                    title=f"{model}: {name}" if titles.count(title) > 1 else model,
                    groups=found.groups,
                    seeds=tuple(seed.prediction for seed in all_seeds),
                    model=model,
                    name=name,
                    regression=found,
                )
            )
            for variable, response in found.baselines.items():
                baseline = Predictor(variable, found.groups, (response,), name=variable)
                baselines.setdefault(title, {}).setdefault(variable, baseline)
    return [
        TargetResults(
            title,
            main.plan,
            main,
            (*predictors[title], *baselines.get(title, {}).values()),
            any(seeds[0].is_weighted for seeds in models.values()),
        )
        for title, main in mains.items()
    ]  # fmt: skip


def make_regression_table(target: TargetResults, models: Mapping[str, Sequence[Summary]]) -> RegressionTable:
    """Make the table of a target."""
    task = target.main.task
    return RegressionTable(
        target=target.title,
        is_ratio=target.plan.is_ratio,
        unit="" if task.factor_of else task.unit,
        predictors=target.predictors,
        rows=tuple(_rows(target)),
        coverage=tuple(_coverage_rows(target, models)),
    )


def binned_by(response: ResponseSummary) -> dict[str, BinnedResolution]:
    """Return all numbers in bins: of observers, of the true value, of the highest score."""
    others = {TRUE_VALUE: response.by_true_value, HIGHEST_SCORE: response.by_highest_score}
    return {**response.by, **{name: found for name, found in others.items() if found is not None}}


_Numbers = list[tuple[Resolution, tuple[int, ...]]]  # of each seed: where to find the number


def _rows(target: TargetResults) -> Iterator[ResponseRow]:
    """Yield all jets, the classes, then bins: of all jets, and of each class."""
    groups = target.main.groups
    for group in groups:
        yield _row(target, Place(group), [_of_group(predictor, group) for predictor in target.predictors])
    for group in groups:
        for observer, binned in binned_by(target.main.prediction).items():
            for number, (low, high) in enumerate(zip(binned.edges[:-1], binned.edges[1:], strict=True)):
                found = [_of_bin(predictor, group, observer, number) for predictor in target.predictors]
                yield _row(target, Place(group, observer, float(low), float(high)), found)


def _of_group(predictor: Predictor, group: str) -> _Numbers:
    if group not in predictor.groups:
        return []
    return [(seed.resolution, (predictor.groups.index(group),)) for seed in predictor.seeds]


def _of_bin(predictor: Predictor, group: str, observer: str, number: int) -> _Numbers:
    """Return where the number of a bin is; only the first seed has bins of observers."""
    binned = binned_by(predictor.first).get(observer)
    if binned is None or group not in predictor.groups:
        return []
    return [(binned.resolution, (predictor.groups.index(group), number))]


def _row(target: TargetResults, place: Place, found: Sequence[_Numbers]) -> ResponseRow:
    centre = target.plan.centre
    return ResponseRow(
        place,
        tuple(int(seeds[0][0].num_jets[seeds[0][1]]) if seeds else 0 for seeds in found),
        tuple(combined([cell_at(part.median, at, centre) for part, at in seeds]) for seeds in found),
        tuple(combined([cell_at(part.width, at) for part, at in seeds]) for seeds in found),
    )


def _coverage_rows(target: TargetResults, models: Mapping[str, Sequence[Summary]]) -> Iterator[CoverageRow]:
    for position, predictor in enumerate(target.predictors):
        if predictor.regression is None:
            continue
        seeds = [
            seed.regressions[predictor.name]
            for seed in models[predictor.model]
            if predictor.name in seed.regressions
        ]
        for number, group in enumerate(predictor.groups):
            coverages = [seed.coverage for seed in seeds if seed.coverage]
            for place, quantile in enumerate(coverages[0].quantiles if coverages else ()):
                cells = [cell_at(one.below, (number, place)) for one in coverages]
                yield CoverageRow(position, "below", group, float(quantile), combined(cells))
            if coverages and not math.isnan(coverages[0].expected):
                cells = [cell_at(one.inside, (number,)) for one in coverages]
                yield CoverageRow(position, "inside", group, coverages[0].expected, combined(cells))
            pulls = [seed.pulls.resolution for seed in seeds if seed.pulls]
            if pulls:
                medians, widths = (
                    combined([cell_at(interval, (number,)) for interval in intervals])
                    for intervals in ([one.median for one in pulls], [one.width for one in pulls])
                )
                yield CoverageRow(position, "pull_median", group, 0.0, medians)
                yield CoverageRow(position, "pull_width", group, 1.0, widths)


def cell_at(interval: Interval, at: tuple[int, ...], centre: float = 0.0) -> Cell | None:
    """Return a number with its interval, from which `centre` is subtracted; None if there is no result."""
    value, low, high = (float(values[at]) - centre for values in interval)
    return None if math.isnan(value) else Cell(value, low, high)
