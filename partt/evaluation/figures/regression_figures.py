"""All figures of a regression's target."""

from collections.abc import Iterator, Sequence

from partt.evaluation.figures.coverage import draw_coverage, draw_pulls
from partt.evaluation.figures.predicted_true import draw_predicted_true
from partt.evaluation.figures.predictors import drawn_groups, file_key
from partt.evaluation.figures.response_dependence import (
    draw_response_by_score,
    draw_response_dependence,
    draw_width_by_class,
)
from partt.evaluation.figures.response_shape import draw_response_shape
from partt.evaluation.figures.spectra import draw_spectra
from partt.evaluation.regression_table import TargetResults, binned_by
from partt.pages.drawing import Drawing
from partt.pages.style import MAX_DRAWN


def draw_targets(targets: Sequence[TargetResults]) -> Iterator[Drawing]:
    """Draw the figures of all targets."""
    names = [target.main.task.target for target in targets]
    for number, (target, name) in enumerate(zip(targets, names, strict=True)):
        yield from _draw_target(target, file_key(name if names.count(name) == 1 else "", "target", number))


def _draw_target(target: TargetResults, key: str) -> Iterator[Drawing]:
    """Draw every figure of a target that there are numbers for."""
    yield draw_response_shape(target, key)
    yield draw_spectra(target, key)
    yield draw_predicted_true(target, key)
    observers = list(binned_by(target.main.prediction))
    if observers:
        yield draw_response_dependence(target, key)
        if len(drawn_groups(target)) > 1:
            yield draw_width_by_class(target, key, observers[0])
    if target.main.by_discriminant:
        yield draw_response_by_score(target, key, target.main.groups[1 : 1 + MAX_DRAWN])
    for drawing in (draw_coverage(target, key), draw_pulls(target, key)):
        if drawing is not None:
            yield drawing
