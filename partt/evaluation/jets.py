"""Predictions for labelled jets in memory, sorted by true class: the input of all computations here.

Axes: n jets of one true class, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.errors import DataError
from partt.model.task_columns import task_columns
from partt.model.tasks import Task
from partt.pages.names import check_class_names

SCORE_TOLERANCE = 1e-4  # by which a score may be outside [0, 1]: half precision rounds
ROUNDING = 1e-9  # relative to the sum of |weights|: positive and negative weights cancel
MAX_EXPONENT = 40  # of two: weights beyond it are scaled, so that no square and no sum overflows


@dataclass(frozen=True, eq=False)
class ClassJets:
    """The jets of one true class."""

    scores: npt.NDArray[np.float32]  # (C, n): a row is one score of all jets
    weights: Array | None  # (n,); None: all 1
    observers: Mapping[str, Array]  # (n,) each; columns of regressions among them

    def __len__(self) -> int:
        """Return the number of jets."""
        return int(self.scores.shape[1])

    def weights_or_ones(self) -> npt.NDArray[np.float64]:
        """Return the weights (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights.astype(np.float64)

    @cached_property
    def total_weight(self) -> float:
        """The weight of all jets, 0 if it is only rounding; a class without a positive one has no results."""
        if self.weights is None:
            return float(len(self))
        total, scale = (
            float(values.sum(dtype=np.float64)) for values in (self.weights, np.abs(self.weights))
        )
        return total if abs(total) > ROUNDING * scale else 0.0


@dataclass(frozen=True, eq=False)
class ScoresByClass:
    """Predictions of one tagger for the jets of a test sample, by true class."""

    class_names: tuple[str, ...]
    jets: tuple[ClassJets, ...]  # one for each class; without classes, one for all jets
    num_rows: int
    left_out: Mapping[str, int] = field(default_factory=dict)  # why -> how many rows
    files: tuple[str, ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict)  # from the notes in the files
    regressions: tuple[Task, ...] = ()  # whose columns are among the observers
    notes: tuple[str, ...] = ()  # what cannot be evaluated, and why

    def __repr__(self) -> str:
        """Return what a prompt shows, without the jets."""
        return f"<ScoresByClass: {self.num_jets:,} jets, {len(self.class_names)} classes>"

    @property
    def num_jets(self) -> int:
        """The number of jets of all classes."""
        return sum(map(len, self.jets))

    def of(self, class_name: str) -> ClassJets:
        """Return the jets of a class."""
        return self.jets[self.class_names.index(class_name)]


def scores_from_arrays(
    class_names: Sequence[str],
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    observers: Mapping[str, npt.ArrayLike] | None = None,
    *,
    regressions: Sequence[Task] = (),
) -> ScoresByClass:
    """Take scores (N, C) and true classes (N,), as positions in `class_names`, from arrays.

    Jets with a NaN score or weight, or with a negative label, are left out and counted. Columns of
    `regressions` are among the observers, named as in prediction files. Without classes, labels are 0.
    """
    matrix = _numbers("scores", probabilities)
    truth = _numbers("labels", labels)
    if matrix.ndim != 2 or matrix.shape[1] != len(class_names):
        raise DataError(f"scores have shape {matrix.shape}; expected: (jets, {len(class_names)})")
    columns = {name: _numbers(f"observer {name!r}", values) for name, values in (observers or {}).items()}
    weight = None if weights is None else _numbers("weights", weights)
    for what, values in [
        ("labels", truth),
        *columns.items(),
        *([("weights", weight)] if weights is not None else []),
    ]:
        if values is None or values.shape != (len(matrix),):
            shape = None if values is None else values.shape
            raise DataError(f"{what} have shape {shape}; expected: ({len(matrix)},), one for each jet")
    if not (np.isnan(truth) | (truth == np.floor(truth))).all():
        raise DataError("labels are positions in the list of classes: whole numbers, negative for no class")
    collector = JetCollector(tuple(class_names), tuple(columns), weighted=weight is not None)
    everything = np.ones(len(matrix), dtype=bool)
    for task in regressions:
        for name in needed_columns(task):
            if name not in columns:
                raise DataError(f"the regression {task.name!r} needs {name!r} among the observers")
    collector.add(ScoredRows("the arrays", 0, matrix.T, truth, weight, columns, everything))
    return replace(collector.finish(), regressions=tuple(regressions))


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """N consecutive rows of a prediction file."""

    where: str  # the file
    first: int  # entry of the first row
    scores: Array  # (C, N)
    labels: Array  # (N,), negative: no class
    weights: Array | None
    observers: Mapping[str, Array]
    selected: npt.NDArray[np.bool_]


def needed_columns(task: Task) -> tuple[str, ...]:
    """Return the columns from which a regression is evaluated."""
    names = task_columns(task)
    ends = [name for name in (names.low, names.high, names.variable) if name is not None]
    return tuple(dict.fromkeys([names.value, *ends, *names.quantiles.values(), names.true]))


class JetCollector:
    """Sorts rows by true class, counts those left out, and joins the rest."""

    def __init__(self, class_names: tuple[str, ...], observers: tuple[str, ...], *, weighted: bool) -> None:
        check_class_names(class_names)
        self._class_names = class_names
        self._observers = observers
        self._weighted = weighted
        self._parts: list[list[ClassJets]] = [[] for _ in class_names or [""]]
        self._num_rows = 0
        self._left_out = {"not selected": 0, "score is NaN": 0, "no class": 0, "weight is not finite": 0}

    def add(self, rows: ScoredRows) -> None:
        """Add the jets of some rows."""
        scores, labels, weights = rows.scores, rows.labels, rows.weights
        self._num_rows += len(labels)
        keep = self._leave_out("not selected", np.ones(len(labels), dtype=bool), rows.selected)
        keep = self._leave_out("score is NaN", keep, np.logical_not(np.isnan(scores).any(axis=0)))
        keep = self._leave_out("no class", keep, labels >= 0)
        if weights is not None:
            keep = self._leave_out("weight is not finite", keep, np.isfinite(weights))
        wrong = keep & ((scores < -SCORE_TOLERANCE) | (scores > 1 + SCORE_TOLERANCE)).any(axis=0)
        if wrong.any():
            entry = rows.first + int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{rows.where}: entry {entry} has a score outside 0 to 1; is the softmax missing?"
            )
        if labels.max(initial=-1) >= len(self._parts):
            raise DataError(
                f"{rows.where}: label {labels.max()} in a file of {len(self._class_names)} classes"
            )
        for number, parts in enumerate(self._parts):
            own = np.flatnonzero(keep & (labels == number))
            if len(own):
                parts.append(
                    ClassJets(
                        np.clip(scores[:, own], 0, 1, dtype=np.float32, casting="unsafe"),
                        None if weights is None else _as_floats(weights[own]),
                        {name: rows.observers[name][own] for name in self._observers},
                    )
                )

    def finish(self, files: tuple[str, ...] = (), origin: Mapping[str, Any] | None = None) -> ScoresByClass:
        """Return all jets; the parts of a class are freed as soon as they are joined."""
        jets = _scaled(tuple(self._joined(parts) for parts in self._parts))
        left_out = {reason: count for reason, count in self._left_out.items() if count}
        scores = ScoresByClass(self._class_names, jets, self._num_rows, left_out, files, origin or {})
        if scores.num_jets == 0:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items()) or "no rows"
            raise DataError(f"{', '.join(files[:3]) or 'the arrays'}: no jets left to evaluate ({reasons})")
        if not any(some.total_weight > 0 for some in jets):
            raise DataError(
                f"{', '.join(files[:3]) or 'the arrays'}: no class has a positive total weight; "
                "evaluate without weights, or with other ones"
            )
        return scores

    def _leave_out(
        self, reason: str, keep: npt.NDArray[np.bool_], good: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        self._left_out[reason] += int(np.count_nonzero(keep & ~good))
        return keep & good

    def _joined(self, parts: list[ClassJets]) -> ClassJets:
        if not parts:
            nothing = np.empty(0, dtype=np.float32)
            return ClassJets(
                np.empty((len(self._class_names), 0), dtype=np.float32),
                nothing if self._weighted else None,
                dict.fromkeys(self._observers, nothing),
            )
        weights = [part.weights for part in parts if part.weights is not None]
        observers = {
            name: np.concatenate([part.observers[name] for part in parts]) for name in self._observers
        }
        joined = np.concatenate([part.scores for part in parts], axis=1)
        parts.clear()
        return ClassJets(joined, np.concatenate(weights) if weights else None, observers)


def _as_floats(weights: Array) -> Array:
    """Return weights in float32 or float64; squares of integers and half precision would overflow."""
    is_float = weights.dtype in (np.dtype(np.float32), np.dtype(np.float64))
    return weights if is_float else weights.astype(np.float64)


def _scaled(jets: tuple[ClassJets, ...]) -> tuple[ClassJets, ...]:
    """Return jets whose weights are neither huge nor tiny: all are scaled by one power of two if they are."""
    largest = max((float(np.abs(some.weights).max(initial=0.0)) for some in jets if some.weights is not None),
                  default=0.0)  # fmt: skip
    exponent = int(np.frexp(largest)[1])
    if abs(exponent) <= MAX_EXPONENT:
        return jets
    return tuple(
        some if some.weights is None else replace(some, weights=np.ldexp(some.weights, -exponent))
        for some in jets
    )


def _numbers(what: str, values: npt.ArrayLike) -> Array:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what}: should be an array of numbers")
    return array
