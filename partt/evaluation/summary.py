"""Scores -> all numbers of a report; their size does not depend on the number of jets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from partt.evaluation.bootstrap import Spread, bootstrap
from partt.evaluation.jets import ClassJets, ScoresByClass
from partt.evaluation.log_odds import LogOddsSpectrum, log_odds_spectrum
from partt.evaluation.metrics import (
    Predictions,
    count_predictions,
    mean_area,
    pair_areas,
    present_classes,
    score_histograms,
)
from partt.evaluation.responses import (
    ALL_JETS,
    MAX_WITHOUT_RATIO,
    RegressionSummary,
    summarise_regression,
    target_title,
)
from partt.evaluation.sculpting import Sculpting, mass_sculpting
from partt.evaluation.settings import EvaluationSettings
from partt.evaluation.working_points import (
    BinnedEfficiency,
    WorkingPoint,
    binned_efficiency,
    find_working_point,
)
from partt.scores.passing import Floats, area, sort_sample
from partt.scores.presets import QuotedDiscriminant
from partt.scores.roc import GRID, RocPoints, roc_points

Step = Callable[[], None]


@dataclass(frozen=True, eq=False)
class WorkingPointSummary:
    """A working point, and the efficiencies of each class and in bins of observers."""

    point: WorkingPoint
    by_class: Mapping[str, BinnedEfficiency]  # in bins of all observers together
    signal_by: Mapping[str, BinnedEfficiency]  # observer -> in its bins
    background_by: Mapping[str, BinnedEfficiency]  # all backgrounds together


@dataclass(frozen=True, eq=False)
class DiscriminantSummary:
    """How well a discriminant separates its signal from the background."""

    discriminant: QuotedDiscriminant
    class_number: int  # position of the signal: chooses its colour in all figures
    num_signal: int
    num_background: int
    area: float
    curve: RocPoints
    rejections: RocPoints  # at the efficiencies of the results table
    working_points: tuple[WorkingPointSummary, ...]
    sculpting: Sculpting | None  # of the first working point
    spectrum: LogOddsSpectrum


@dataclass(frozen=True, eq=False)
class ClassificationSummary:
    """All numbers of the scores of classes."""

    class_names: tuple[str, ...]
    num_jets: Mapping[str, int]  # by class
    predictions: Predictions
    areas: Floats  # (C, C)
    spread: Spread
    histograms: Floats  # (C, C, B)
    discriminants: Mapping[str, DiscriminantSummary]  # by name
    notes: tuple[str, ...]

    @property
    def area(self) -> float:
        """The mean AUC; NaN if fewer than two classes have jets."""
        return mean_area(self.areas)


@dataclass(frozen=True, eq=False)
class Summary:
    """All numbers of one tagger's predictions."""

    class_names: tuple[str, ...]
    num_rows: int
    left_out: Mapping[str, int]
    files: tuple[str, ...]
    origin: Mapping[str, Any]
    num_jets: Mapping[str, int]  # by class; without classes, of all jets
    is_weighted: bool
    classification: ClassificationSummary | None  # None: the tagger has regressions only
    regressions: Mapping[str, RegressionSummary]  # by name
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        """Return what a prompt shows, without the numbers."""
        return f"<Summary: {sum(self.num_jets.values()):,} jets, {len(self.class_names)} classes>"

    @property
    def discriminants(self) -> Mapping[str, DiscriminantSummary]:
        """The discriminants that have a result, by name."""
        return self.classification.discriminants if self.classification else {}


def num_steps(scores: ScoresByClass, settings: EvaluationSettings) -> int:
    """Return how often `summarise` calls `step`."""
    of_classes = 3 + len(settings.discriminants) if scores.class_names else 0
    return of_classes + len(scores.regressions)


def summarise(scores: ScoresByClass, settings: EvaluationSettings, step: Step = lambda: None) -> Summary:
    """Compute all numbers of one tagger's predictions."""
    classification = _summarise_classes(scores, settings, step) if scores.class_names else None
    regressions: dict[str, RegressionSummary] = {}
    notes = [*(classification.notes if classification else ()), *scores.notes]
    for task in scores.regressions:
        plan = settings.responses.get(target_title(task))
        found = plan and summarise_regression(scores, task, plan, settings.discriminants)
        if found:
            regressions[task.name] = found
            notes += _notes_of(found)
        else:
            notes.append(f"{task.name}: no result, because no jet has a true value and a finite prediction")
        step()
    names = scores.class_names or (ALL_JETS,)
    return Summary(
        class_names=scores.class_names,
        num_rows=scores.num_rows,
        left_out=scores.left_out,
        files=scores.files,
        origin=scores.origin,
        num_jets={name: len(jets) for name, jets in zip(names, scores.jets, strict=True)},
        is_weighted=any(jets.weights is not None for jets in scores.jets),
        classification=classification,
        regressions=regressions,
        notes=tuple(notes),
    )


def _notes_of(found: RegressionSummary) -> list[str]:
    name, num_all = found.task.name, found.num_jets + sum(found.left_out.values())
    notes = [
        f"{name}: {count:,} of {num_all:,} jets left out: {why}" for why, count in found.left_out.items()
    ]
    if not found.plan.is_ratio:
        notes.append(
            f"{name}: more than {100 * MAX_WITHOUT_RATIO:g} % of the true values are zero or negative, so "
            "residuals (prediction - true value) replace responses"
        )
    return notes


def _summarise_classes(
    scores: ScoresByClass, settings: EvaluationSettings, step: Step
) -> ClassificationSummary:
    predictions = count_predictions(scores)
    step()
    areas = pair_areas(scores)
    step()
    spread = bootstrap(scores)
    step()
    present = {scores.class_names[number] for number in present_classes(scores)}
    discriminants: dict[str, DiscriminantSummary] = {}
    notes = []
    if len(present) < len(scores.class_names):
        missing = [name for name in scores.class_names if name not in present]
        weightless = (
            "" if all(jets.weights is None for jets in scores.jets) else " with a positive total weight"
        )
        notes.append(
            f"no jets of {', '.join(missing)}{weightless}: "
            "the AUC is the mean over pairs of the other classes"
        )
    for discriminant in settings.discriminants:
        absent = [
            name
            for name in (discriminant.signal, *discriminant.backgrounds)
            if name not in scores.class_names or name not in present
        ]
        if absent:
            notes.append(f"{discriminant.title}: no result, because there are no jets of {', '.join(absent)}")
        else:
            discriminants[discriminant.name] = _summarise_discriminant(scores, discriminant, settings)
        step()
    return ClassificationSummary(
        class_names=scores.class_names,
        num_jets={name: len(jets) for name, jets in zip(scores.class_names, scores.jets, strict=True)},
        predictions=predictions,
        areas=areas,
        spread=spread,
        histograms=score_histograms(scores),
        discriminants=discriminants,
        notes=tuple(notes),
    )


def _summarise_discriminant(
    scores: ScoresByClass, discriminant: QuotedDiscriminant, settings: EvaluationSettings
) -> DiscriminantSummary:
    jets = {name: scores.of(name) for name in (discriminant.signal, *discriminant.backgrounds)}
    values = {name: discriminant.values(some.scores, scores.class_names) for name, some in jets.items()}
    backgrounds = list(discriminant.backgrounds)
    all_jets = _joined([jets[name] for name in backgrounds])
    signal = sort_sample(values[discriminant.signal], jets[discriminant.signal].weights)
    all_values = np.concatenate([values[name] for name in backgrounds])
    background = sort_sample(all_values, all_jets.weights)
    working_points = []
    for request in settings.requests_for(discriminant):
        point = find_working_point(signal, background, request)
        passed = {name: found >= point.threshold for name, found in values.items()}
        all_passed = np.concatenate([passed[name] for name in backgrounds])
        bins = {observer: {observer: edges} for observer, edges in (settings.bins or {}).items()}
        working_points.append(
            WorkingPointSummary(
                point,
                {name: _in_bins(jets[name], passed[name], settings.bins or {}) for name in jets},
                {
                    name: _in_bins(jets[discriminant.signal], passed[discriminant.signal], edges)
                    for name, edges in bins.items()
                },
                {name: _in_bins(all_jets, all_passed, edges) for name, edges in bins.items()},
            )
        )
    sculpting = None
    if settings.mass is not None:
        observer, edges = settings.mass
        passed_first = all_values >= working_points[0].point.threshold
        sculpting = mass_sculpting(
            observer, all_jets.observers[observer], passed_first, all_jets.weights, edges
        )
    return DiscriminantSummary(
        discriminant=discriminant,
        class_number=scores.class_names.index(discriminant.signal),
        num_signal=len(signal.values),
        num_background=len(background.values),
        area=area(signal, background),
        curve=roc_points(signal, background, GRID),
        rejections=roc_points(signal, background, discriminant.efficiencies),
        working_points=tuple(working_points),
        sculpting=sculpting,
        spectrum=log_odds_spectrum(
            values[discriminant.signal], all_values, jets[discriminant.signal].weights, all_jets.weights
        ),
    )


def _in_bins(jets: ClassJets, passed: npt.NDArray[np.bool_], bins: Mapping[str, Floats]) -> BinnedEfficiency:
    return binned_efficiency(passed, jets.weights, jets.observers, bins)


def _joined(samples: Sequence[ClassJets]) -> ClassJets:
    """Return several classes as one, without scores: only observers and weights are needed from here on."""
    if len(samples) == 1:
        return samples[0]
    weights = [sample.weights for sample in samples if sample.weights is not None]
    return ClassJets(
        np.empty((0, sum(map(len, samples))), dtype=np.float32),
        np.concatenate(weights) if weights else None,
        {
            name: np.concatenate([sample.observers[name] for sample in samples])
            for name in samples[0].observers
        },
    )
