"""Numbers of a regression: how predictions compare with true values.

With `factor_of`, everything is in the unit of the variable: the prediction is factor x variable, the true
value true factor x variable, and the variable itself the baseline "no regression".

Axes: n jets, G groups of jets (all jets, then each class), B bins, Q quantiles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.evaluation.bins import bin_numbers, round_edges
from partt.evaluation.jets import ScoresByClass
from partt.evaluation.resolutions import LEVELS, Resolution, SortedSample
from partt.model.task_columns import TaskColumns, task_columns
from partt.model.tasks import Task
from partt.scores.discriminants import Discriminant
from partt.scores.intervals import COVERAGE, Interval, interval_in_bins
from partt.scores.passing import Floats

Bools = npt.NDArray[np.bool_]
ALL_JETS = "all jets"
HIGHEST_SCORE = "highest score"
MAX_WITHOUT_RATIO = 0.01  # of the true values may be zero or negative; with more, residuals replace ratios
NOT_KNOWN = "true value is not known"
NOT_FINITE = "prediction is not finite"
NOT_POSITIVE = "true value is not positive"
LARGEST = 1e100  # what is larger counts as infinite: sums and differences of the rest are finite
SCORE_EDGES = np.linspace(0, 1, 11)
PULL_EDGES = np.linspace(-5, 5, 51)
TRUE_BINS = 8
VALUE_BINS = 60
RESPONSE_BINS = 100
RESPONSE_WIDTHS = 4  # on either side of the median, in figures of responses
SOME_JETS = 100_000  # by which edges are chosen


@dataclass(frozen=True, eq=False)
class ResponsePlan:
    """What responses of a target are, and in which bins: the same for all models."""

    is_ratio: bool  # response = prediction / true value, else residual = prediction - true value
    true_edges: Floats | None  # few bins; None if there is only one true value
    value_edges: Floats  # of spectra and of prediction against true value
    response_edges: Floats
    bins: Mapping[str, Floats]  # observer -> edges
    baselines: tuple[str, ...]  # observers to take for the prediction; of the first model alone

    @property
    def centre(self) -> float:
        """The response of a perfect prediction."""
        return 1.0 if self.is_ratio else 0.0


@dataclass(frozen=True, eq=False)
class BinnedResolution:
    """Responses in bins."""

    edges: Floats  # (B + 1,)
    resolution: Resolution  # (G, B)


@dataclass(frozen=True, eq=False)
class ResponseSummary:
    """Responses of a prediction or of a baseline."""

    resolution: Resolution  # (G,)
    by: Mapping[str, BinnedResolution]  # observer -> in its bins
    by_true_value: BinnedResolution | None
    by_highest_score: BinnedResolution | None  # None without classes
    responses: Floats  # (G, B): fractions of the jets of a group in bins of the response
    spectrum: Floats  # (G, B): fractions in bins of the predicted value
    against_true: Floats  # (B, B): weight of all jets, by true value and prediction


@dataclass(frozen=True, eq=False)
class CoverageSummary:
    """How often true values are below predicted quantiles, and inside the predicted interval."""

    quantiles: Floats  # (Q,) predicted
    below: Interval  # (G, Q) fractions of true values that are not above
    expected: float  # inside, if the widths are right; NaN without an interval
    inside: Interval  # (G,)
    inside_by: Mapping[str, tuple[Floats, Interval]]  # observer -> edges, (G, B)


@dataclass(frozen=True, eq=False)
class PullSummary:
    """(true value - mean) / width of gaussian predictions: a normal distribution, if the widths are right."""

    resolution: Resolution  # (G,)
    histogram: Floats  # (G, B) fractions, in bins of PULL_EDGES
    num_left_out: int  # jets whose width is not positive


@dataclass(frozen=True, eq=False)
class RegressionSummary:
    """All numbers of a regression."""

    task: Task
    plan: ResponsePlan
    groups: tuple[str, ...]  # all jets, then the classes
    num_jets: int
    left_out: Mapping[str, int]  # why -> how many jets
    prediction: ResponseSummary
    baselines: Mapping[str, ResponseSummary]  # variable -> taken for the prediction
    true_spectrum: Floats  # (G, B)
    by_discriminant: Mapping[str, BinnedResolution]  # title -> of the prediction: (signal, background; B)
    coverage: CoverageSummary | None
    pulls: PullSummary | None


@dataclass(frozen=True, eq=False)
class _TargetJets:
    """The jets of a sample whose true value and prediction are known."""

    scores: ScoresByClass
    task: Task
    columns: TaskColumns
    keep: Bools  # (N,) which of the jets of the sample
    classes: npt.NDArray[np.int64]  # (n,)
    weights: Array | None  # (n,)
    true: Floats  # (n,) in the unit of the variable, as are predictions and baselines
    predicted: Floats
    left_out: Mapping[str, int]

    @property
    def num_groups(self) -> int:
        return 1 + len(self.scores.class_names)

    def column(self, name: str) -> Floats:
        return _joined(self.scores, name)[self.keep]

    def sums(self, cells: npt.NDArray[np.int64], num_cells: int, values: Array | None = None) -> Floats:
        """Return the sums (G, num_cells) of weights (or other values) in cells; negative: in none."""
        is_inside = cells >= 0
        added = self.weights if values is None else values
        added = None if added is None else added[is_inside]
        by_class = np.bincount(
            self.classes[is_inside] * num_cells + cells[is_inside],
            added,
            minlength=max(1, self.num_groups - 1) * num_cells,
        ).reshape(-1, num_cells).astype(np.float64)  # fmt: skip
        all_jets = by_class.sum(axis=0, keepdims=True)
        return all_jets if self.num_groups == 1 else np.concatenate([all_jets, by_class])

    def fractions(self, values: Floats, edges: Floats) -> Floats:
        """Return the fractions (G, B) of the jets of each group in bins; 0 for groups without a weight."""
        totals = self.sums(np.zeros(len(self.classes), dtype=np.int64), 1)
        has_weight = totals > 0
        sums = self.sums(bin_numbers(values, edges), len(edges) - 1)
        return np.where(has_weight, sums / np.where(has_weight, totals, 1.0), 0.0)

    def resolution(
        self, sample: SortedSample, cells: npt.NDArray[np.int64] | None = None, num_cells: int = 1
    ) -> Resolution:
        """Return the resolution (G, cells) of a sample of these jets."""
        if cells is None:
            cells = np.zeros(len(self.classes), dtype=np.int64)
        parts = [sample.in_cells(cells, num_cells)]
        if self.num_groups > 1:
            by_class = np.where(cells < 0, -1, self.classes * num_cells + cells)
            parts.append(sample.in_cells(by_class, (self.num_groups - 1) * num_cells))
        return Resolution.stacked(parts).reshape(self.num_groups, num_cells)

    def fraction_of(
        self, is_chosen: Bools, cells: npt.NDArray[np.int64] | None = None, num_cells: int = 1
    ) -> Interval:
        """Return the fraction (G, cells) of jets that are chosen, with its interval."""
        if cells is None:
            cells = np.zeros(len(self.classes), dtype=np.int64)
        weights = np.ones(len(cells)) if self.weights is None else self.weights.astype(np.float64)
        sums = (
            self.sums(cells, num_cells, values)
            for values in (weights, weights * is_chosen, weights**2, weights**2 * is_chosen)
        )
        return interval_in_bins(*sums)


def target_title(task: Task) -> str:
    """Name the target of a regression: those of several models are compared by it."""
    return f"{task.target} × {task.factor_of}" if task.factor_of else task.target


def plan_responses(
    scores: ScoresByClass, task: Task, baselines: Sequence[str], bins: Mapping[str, Floats]
) -> ResponsePlan | None:
    """Choose edges, and ratios or residuals, by the jets of the first model; None if no jet is known."""
    jets = _target_jets(scores, task, is_ratio=False)
    if len(jets.true) == 0:
        return None
    is_ratio = bool(np.mean(jets.true <= 0) <= MAX_WITHOUT_RATIO)
    every = max(1, len(jets.true) // SOME_JETS)
    true = jets.true[::every]
    ranges = []
    for values in (jets.predicted, *(jets.column(name) for name in baselines)):
        responses = _responses(values[::every], true, is_ratio=is_ratio)
        known = responses[_is_finite(responses)]
        if len(known):
            low, middle, high = np.quantile(known, LEVELS)
            reach = RESPONSE_WIDTHS * (high - low) / 2
            ranges += [max(middle - reach, 0.0) if is_ratio else middle - reach, middle + reach]
    return ResponsePlan(
        is_ratio=is_ratio,
        true_edges=round_edges(true, TRUE_BINS),
        value_edges=_edges(np.concatenate([true, jets.predicted[::every]]), VALUE_BINS),
        response_edges=_edges(np.array(ranges), RESPONSE_BINS),
        bins=bins,
        baselines=tuple(baselines),
    )


def summarise_regression(
    scores: ScoresByClass,
    task: Task,
    plan: ResponsePlan,
    discriminants: Sequence[Discriminant] = (),
) -> RegressionSummary | None:
    """Compute all numbers of a regression; None if no jet has a true value and a prediction."""
    jets = _target_jets(scores, task, is_ratio=plan.is_ratio)
    if len(jets.true) == 0:
        return None
    found = _summarise_predictor(jets, jets.predicted, plan)
    return RegressionSummary(
        task=task,
        plan=plan,
        groups=(ALL_JETS, *scores.class_names),
        num_jets=len(jets.true),
        left_out=jets.left_out,
        prediction=found,
        baselines={name: _summarise_baseline(jets, name, plan) for name in plan.baselines},
        true_spectrum=jets.fractions(jets.true, plan.value_edges),
        by_discriminant=dict(_by_discriminant(jets, plan, discriminants)),
        coverage=_coverage(jets, plan),
        pulls=_pulls(jets) if task.kind == "gaussian" else None,
    )


def _target_jets(scores: ScoresByClass, task: Task, *, is_ratio: bool) -> _TargetJets:
    columns = task_columns(task)
    factor = 1.0 if columns.variable is None else _joined(scores, columns.variable)
    with np.errstate(over="ignore", invalid="ignore"):
        true, predicted = (_joined(scores, name) * factor for name in (columns.true, columns.value))
    is_finite = _is_finite(predicted) & _is_finite(_responses(predicted, true, is_ratio=is_ratio))
    for name in (columns.low, columns.high, *columns.quantiles.values()):
        if name is not None:
            is_finite &= _is_finite(_joined(scores, name))
    keep = _is_finite(true)
    left_out = {NOT_KNOWN: len(true) - int(np.count_nonzero(keep))}
    for reason, good in ((NOT_POSITIVE, true > 0 if is_ratio else keep), (NOT_FINITE, is_finite)):
        left_out[reason] = int(np.count_nonzero(keep & ~good))
        keep = keep & good
    classes = np.repeat(np.arange(len(scores.jets)), [len(jets) for jets in scores.jets])
    weights = [jets.weights for jets in scores.jets if jets.weights is not None]
    return _TargetJets(
        scores,
        task,
        columns,
        keep,
        classes[keep],
        np.concatenate(weights)[keep] if weights else None,
        true[keep],
        predicted[keep],
        {reason: count for reason, count in left_out.items() if count},
    )


def _joined(scores: ScoresByClass, name: str) -> Floats:
    return np.concatenate([jets.observers[name] for jets in scores.jets]).astype(np.float64)


def _is_finite(values: Floats) -> Bools:
    return np.abs(values) < LARGEST


def _responses(predicted: Floats, true: Floats, *, is_ratio: bool) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return predicted / true if is_ratio else predicted - true


def _summarise_baseline(jets: _TargetJets, name: str, plan: ResponsePlan) -> ResponseSummary:
    """Take a variable for the prediction; jets where it is not finite are left out of this alone."""
    values = jets.column(name)
    is_finite = _is_finite(values) & _is_finite(_responses(values, jets.true, is_ratio=plan.is_ratio))
    keep = jets.keep.copy()
    keep[keep] = is_finite
    weights = None if jets.weights is None else jets.weights[is_finite]
    some = _TargetJets(
        jets.scores,
        jets.task,
        jets.columns,
        keep,
        jets.classes[is_finite],
        weights,
        jets.true[is_finite],
        values[is_finite],
        {},
    )
    return _summarise_predictor(some, some.predicted, plan)


def _summarise_predictor(jets: _TargetJets, predicted: Floats, plan: ResponsePlan) -> ResponseSummary:
    responses = _responses(predicted, jets.true, is_ratio=plan.is_ratio)
    sample = SortedSample(responses, jets.weights)

    def in_bins(values: Array, edges: Floats) -> BinnedResolution:
        num_bins = len(edges) - 1
        return BinnedResolution(edges, jets.resolution(sample, bin_numbers(values, edges), num_bins))

    value_bins = len(plan.value_edges) - 1
    places = [bin_numbers(values, plan.value_edges) for values in (jets.true, predicted)]
    cells = np.where((places[0] < 0) | (places[1] < 0), -1, places[0] * value_bins + places[1])
    return ResponseSummary(
        resolution=jets.resolution(sample).reshape(jets.num_groups),
        by={
            name: in_bins(jets.column(name), edges)
            for name, edges in plan.bins.items()
            if name in jets.scores.jets[0].observers
        },
        by_true_value=None if plan.true_edges is None else in_bins(jets.true, plan.true_edges),
        by_highest_score=in_bins(_highest_scores(jets), SCORE_EDGES) if jets.num_groups > 1 else None,
        responses=jets.fractions(responses, plan.response_edges),
        spectrum=jets.fractions(predicted, plan.value_edges),
        against_true=jets.sums(cells, value_bins**2)[0].reshape(value_bins, value_bins),
    )


def _highest_scores(jets: _TargetJets) -> Array:
    return np.concatenate([some.scores.max(axis=0) for some in jets.scores.jets])[jets.keep]


def _by_discriminant(
    jets: _TargetJets, plan: ResponsePlan, discriminants: Sequence[Discriminant]
) -> Iterator[tuple[str, BinnedResolution]]:
    """Yield the responses of signal and of background jets (2, B) in bins of each discriminant."""
    scores, num_bins = jets.scores, len(SCORE_EDGES) - 1
    starts = np.cumsum([0, *map(len, scores.jets)])
    for discriminant in discriminants:
        names = [*discriminant.signals, *discriminant.backgrounds]
        if not set(names) <= set(scores.class_names):
            continue
        cells = np.full(len(jets.keep), -1)
        for name in names:
            number = scores.class_names.index(name)
            values = discriminant.values(scores.jets[number].scores, scores.class_names)
            first = 0 if name in discriminant.signals else num_bins
            cells[starts[number] : starts[number + 1]] = first + bin_numbers(values, SCORE_EDGES)
        own = cells[jets.keep]
        some = own >= 0
        responses = _responses(jets.predicted[some], jets.true[some], is_ratio=plan.is_ratio)
        sample = SortedSample(responses, None if jets.weights is None else jets.weights[some])
        found = sample.in_cells(own[some], 2 * num_bins).reshape(2, num_bins)
        yield discriminant.title, BinnedResolution(SCORE_EDGES, found)


def _coverage(jets: _TargetJets, plan: ResponsePlan) -> CoverageSummary | None:
    """Compare true values with predicted quantiles, or with mean - width and mean + width."""
    columns, quantiles = jets.columns, jets.columns.quantiles
    if columns.low is None and not quantiles:
        return None
    true = jets.column(columns.true)
    below = [jets.fraction_of(true <= jets.column(name)) for name in quantiles.values()]
    empty = np.full((jets.num_groups, 0), np.nan)
    expected, inside, inside_by = np.nan, Interval(*[np.full(jets.num_groups, np.nan)] * 3), {}
    if columns.low is not None and columns.high is not None:
        is_inside = (true > jets.column(columns.low)) & (true <= jets.column(columns.high))
        expected = max(quantiles) - min(quantiles) if quantiles else COVERAGE
        inside = Interval(*(values[:, 0] for values in jets.fraction_of(is_inside)))
        for name, edges in plan.bins.items():
            if name in jets.scores.jets[0].observers:
                cells = bin_numbers(jets.column(name), edges)
                inside_by[name] = edges, jets.fraction_of(is_inside, cells, len(edges) - 1)
    return CoverageSummary(
        quantiles=np.array(list(quantiles)),
        below=Interval(*(np.concatenate([empty, *parts], axis=1) for parts in zip(*below, strict=True)))
        if below
        else Interval(empty, empty, empty),
        expected=expected,
        inside=inside,
        inside_by=inside_by,
    )


def _pulls(jets: _TargetJets) -> PullSummary:
    low, high = (jets.column(name) for name in (jets.columns.low, jets.columns.high) if name is not None)
    mean, true = jets.column(jets.columns.value), jets.column(jets.columns.true)
    width = (high - low) / 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pulls = (true - mean) / width
    is_known = (width > 0) & _is_finite(pulls)
    cells = np.where(is_known, 0, -1)
    sample = SortedSample(np.where(is_known, pulls, 0.0), jets.weights)
    return PullSummary(
        resolution=jets.resolution(sample, cells).reshape(jets.num_groups),
        histogram=jets.fractions(np.where(is_known, pulls, np.nan), PULL_EDGES),
        num_left_out=len(pulls) - int(np.count_nonzero(is_known)),
    )


def _edges(values: Floats, num_bins: int) -> Floats:
    """Return round edges; around a single value, if there is no other."""
    found = round_edges(values, num_bins)
    if found is not None:
        return found
    centre = float(values[0]) if len(values) else 0.0
    reach = abs(centre) / 2 or 1.0
    return np.linspace(centre - reach, centre + reach, num_bins + 1)
