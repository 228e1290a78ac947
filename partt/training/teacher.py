"""A tagger that teaches: soft labels of jets, from its scores.

Axes: N jets, C classes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from partt.data.files.tables import FileInfo
from partt.data.jet_batch import Positions
from partt.data.reading.jet_source import ShouldStop
from partt.errors import ConfigError, DataError
from partt.jobs.stop_signals import SignalledError
from partt.tagger.inference import BatchScores, log_probabilities, sharing_threads
from partt.tagger.tagger import Tagger


@dataclass(frozen=True, eq=False)
class Teacher:
    """A tagger whose scores are learned; it reads its own inputs from the files of the student."""

    tagger: Tagger
    class_names: tuple[str, ...]  # of the student, in the order of its outputs

    @property
    def key(self) -> str:
        """What decides the labels: the tagger, and the order of the classes."""
        return " ".join([self.tagger.sha256, *self.class_names])

    def require(self, file: FileInfo) -> None:
        """Raise an error if a file lacks the teacher's inputs."""
        try:
            self.tagger.require(file)
        except DataError as error:
            raise DataError(f"--teacher: {error}") from error

    def label(
        self, file: FileInfo, start: int, stop: int, jets: Positions, should_stop: ShouldStop | None
    ) -> Tensor:
        """Return ln p (N, C) of some jets of a chunk; NaN if the teacher does not select, or read, a jet.

        The same jets give the same numbers, whatever the number of threads.
        """
        variables = self.tagger.read(file, start, stop).take(jets)
        with sharing_threads() as each:

            def each_until_stopped(
                run: Callable[[Positions], BatchScores], batches: Sequence[Positions]
            ) -> Iterable[BatchScores]:
                return each(_until(run, should_stop), batches)

            found = self.tagger.tag(variables, each=each_until_stopped)
        columns = [self.tagger.class_names.index(name) for name in self.class_names]
        scores = log_probabilities(found.probabilities[:, columns])
        return torch.from_numpy(scores.astype(np.float32))


def _until(
    run: Callable[[Positions], BatchScores], should_stop: ShouldStop | None
) -> Callable[[Positions], BatchScores]:
    def run_or_stop(batch: Positions) -> BatchScores:
        if should_stop is not None and should_stop():
            raise SignalledError("stopped by a signal while the teacher was computing")
        return run(batch)

    return run_or_stop


def teaching(tagger: Tagger) -> str:
    """Say who teaches what."""
    who = f"{tagger.name} ({tagger.network_name})" if tagger.name else tagger.network_name
    text = f"learns from the scores of {who}, sha256 {tagger.with_hash().sha256[:12]}"
    names = ", ".join(task.name for task in tagger.regressions)
    return f"{text}; its regressions ({names}) are not learned" if names else text


def make_teacher(tagger: Tagger, class_names: Sequence[str]) -> Teacher:
    """Return a teacher for a student of these classes; other classes are an error."""
    tagger.require_predictions()
    if not tagger.class_names:
        names = ", ".join(task.name for task in tagger.regressions)
        raise ConfigError(f"--teacher: the tagger has no classes, only regressions ({names})")
    if sorted(tagger.class_names) != sorted(class_names):
        raise ConfigError(
            f"--teacher: the classes of the teacher are {', '.join(tagger.class_names)}; those of the data "
            f"config are {', '.join(class_names) or 'none'}; they must be the same, in any order"
        )
    return Teacher(tagger.with_hash(), tuple(class_names))
