"""What a change of inputs or network costs: accuracy, AUC and rejections of the same jets, before and after.

Both are measured on the same jets, so most of the fluctuation cancels in the difference. Errors of accuracy
and AUC follow from the influence of each jet (DeLong et al., Biometrics 44 (1988) 837), those of rejections
from a Poisson bootstrap. The number of jets of a class is a choice, not a fluctuation.

Axes: N jets, n jets of one class, C classes, R repetitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.scores.passing import Floats, Passing, sort_sample
from partt.scores.presets import QuotedDiscriminant

NUM_REPETITIONS = 200
MIN_PASSING = 10  # background jets that a rejection is measured with
EFFICIENCIES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
QUANTILES = (0.15866, 0.84134)


@dataclass(frozen=True)
class Loss:
    """A number before and after a change, and the loss with its 68 % interval.

    The loss of accuracy and AUC is a difference; that of a rejection a fraction, 1 - after / before.
    """

    before: float
    after: float
    loss: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ScoreLosses:
    """All losses of one change."""

    accuracy: Loss
    area: Loss
    rejections: Mapping[str, Loss]  # by discriminant

    @property
    def is_within_errors(self) -> bool:
        """Whether nothing is lost: every loss is below the upper end of its interval around 0."""
        found = (self.accuracy, self.area, *self.rejections.values())
        return all(not loss.low > 0 for loss in found)


class ScoreComparison:
    """Scores of labelled jets, which others of the same jets are compared with."""

    def __init__(
        self,
        probabilities: Floats,
        labels: npt.NDArray[np.int64],
        class_names: Sequence[str],
        discriminants: Sequence[QuotedDiscriminant],
        seed: int = 0,
    ) -> None:
        self.probabilities, self.labels = probabilities, labels  # (N, C), (N,)
        self.class_names = tuple(class_names)
        self.present = [number for number in range(len(class_names)) if (labels == number).any()]
        names = {class_names[number] for number in self.present}
        self.discriminants = {
            one.name: one for one in discriminants if {one.signal, *one.backgrounds} <= names
        }
        random = np.random.default_rng(seed)
        self.times = random.poisson(1.0, (NUM_REPETITIONS, len(labels))).astype(np.float32)  # (R, N)
        self.efficiencies = {
            name: _measurable(*self._samples(one, probabilities), one.efficiencies[0])
            for name, one in self.discriminants.items()
        }
        self._is_right = probabilities.argmax(axis=1) == labels
        self._influence = self._influences(probabilities)

    def with_scores(self, after: Floats) -> ScoreLosses:
        """Compare with other scores (N, C) of the same jets; jets without finite ones are left out."""
        finite = np.isfinite(after).all(axis=1)
        if not finite.all():
            some = ScoreComparison(
                self.probabilities[finite],
                self.labels[finite],
                self.class_names,
                tuple(self.discriminants.values()),
            )
            return some.with_scores(after[finite])
        return ScoreLosses(
            self._accuracy(after),
            self._area(after),
            {
                name: self._rejection(name, one, after)
                for name, one in self.discriminants.items()
                if self.efficiencies[name] is not None
            },
        )

    def _accuracy(self, after: Floats) -> Loss:
        is_right = after.argmax(axis=1) == self.labels
        change = self._is_right.astype(float) - is_right
        size = len(self.labels)
        variance = sum((own.sum() / size) ** 2 * _variance_of_mean(change[own]) for own in self._of_classes())
        return _symmetric(float(self._is_right.mean()), float(is_right.mean()), float(variance))

    def _area(self, after: Floats) -> Loss:
        influence = self._influences(after)
        before, now = (self._mean_area(values) for values in (self._influence, influence))
        change = self._influence - influence
        variance = sum(_variance_of_mean(change[own]) for own in self._of_classes())
        return _symmetric(before, now, float(variance))

    def _of_classes(self) -> list[npt.NDArray[np.bool_]]:
        return [self.labels == number for number in self.present]

    def _mean_area(self, influence: Floats) -> float:
        """Return the mean AUC: each area is counted by the jets of both of its classes."""
        if len(self.present) < 2:
            return float("nan")
        return float(sum(influence[own].mean() for own in self._of_classes())) / 2

    def _influences(self, probabilities: Floats) -> Floats:
        """Return the part (N,) of each jet in the mean AUC over ordered pairs of classes.

        Of a jet of class c: how often it is above those of other classes in its own score, and below them
        in theirs. Of two classes in all, only the score of the second counts.
        """
        only_second = len(self.class_names) == 2
        pairs = [(i, j) for i in self.present for j in self.present if i != j]
        pairs = [(i, j) for i, j in pairs if i == 1 or not only_second]
        influence = np.zeros(len(self.labels))
        for i, j in pairs:
            own, other = (self.labels == number for number in (i, j))
            above, below = placements(probabilities[own, i], probabilities[other, i])
            influence[own] += above / len(pairs)
            influence[other] += below / len(pairs)
        return influence

    def _samples(self, one: QuotedDiscriminant, probabilities: Floats) -> tuple[Floats, Floats]:
        values = one.values(probabilities.T, self.class_names)
        is_background = np.isin(self.labels, [self.class_names.index(name) for name in one.backgrounds])
        return values[self.labels == self.class_names.index(one.signal)], values[is_background]

    def _rejection(self, name: str, one: QuotedDiscriminant, after: Floats) -> Loss:
        efficiency = self.efficiencies[name]
        assert efficiency is not None  # noqa: S101 - for mypy
        is_background = np.isin(self.labels, [self.class_names.index(each) for each in one.backgrounds])
        is_signal = self.labels == self.class_names.index(one.signal)
        times = [np.concatenate([np.ones((1, own.sum())), self.times[:, own]]) for own in
                 (is_signal, is_background)]  # fmt: skip
        found = []
        for probabilities in (self.probabilities, after):
            signal, background = self._samples(one, probabilities)
            found.append(passing_background(signal, background, efficiency, *times))
        before, now = found  # (1 + R,): the first is of the jets themselves
        ratio = np.divide(before, now, out=np.full_like(now, np.nan), where=now > 0)  # after / before
        low, high = (
            np.nanquantile(1 - ratio[1:], QUANTILES) if np.isfinite(ratio[1:]).any() else (np.nan, np.nan)
        )
        rejections = [1 / value if value > 0 else np.inf for value in (before[0], now[0])]
        return Loss(rejections[0], rejections[1], float(1 - ratio[0]), float(low), float(high))


def placements(signal: Floats, background: Floats) -> tuple[Floats, Floats]:
    """Return the fraction of background below each signal jet, and of signal above each background jet."""
    ordered, other = np.sort(background), np.sort(signal)
    below = np.searchsorted(ordered, signal, "left") + np.searchsorted(ordered, signal, "right")
    above = np.searchsorted(other, background, "left") + np.searchsorted(other, background, "right")
    return below / (2 * len(background)), 1 - above / (2 * len(signal))


def passing_background(
    signal: Floats, background: Floats, efficiency: float, signal_times: Floats, background_times: Floats
) -> Floats:
    """Return the background efficiency (R,) at a signal efficiency, with jets taken so many times (R, n)."""
    down = np.argsort(-signal, kind="stable")
    passed = np.cumsum(signal_times[:, down], axis=1)
    last = (passed >= efficiency * passed[:, -1:] - 1e-6).argmax(axis=1)
    thresholds = signal[down][last]
    up = np.argsort(background, kind="stable")
    first = np.searchsorted(background[up], thresholds, side="left")
    none = np.zeros((len(thresholds), 1))
    below: Floats = np.concatenate([none, np.cumsum(background_times[:, up], axis=1)], axis=1)
    total = below[:, -1]
    above = total - below[np.arange(len(first)), first]
    efficiencies: Floats = np.divide(above, total, out=np.zeros_like(above), where=total > 0)
    return efficiencies


def _measurable(signal: Floats, background: Floats, quoted: float) -> float | None:
    """Return the lowest signal efficiency, not below the quoted one, at which enough background passes."""
    passing: Passing = sort_sample(background)
    candidates = [quoted, *(e for e in EFFICIENCIES if e > quoted)]
    thresholds = sort_sample(signal).threshold_for(candidates)
    enough = np.flatnonzero(passing.num_passing(thresholds) >= MIN_PASSING)
    return candidates[enough[0]] if len(enough) else None


def _variance_of_mean(values: Floats) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _symmetric(before: float, after: float, variance: float) -> Loss:
    error = float(np.sqrt(variance))
    return Loss(before, after, before - after, before - after - error, before - after + error)
