"""Scores of a tagger, as prediction writes them.

Axes: N jets, C classes, D width of the embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Table
from partt.data.training_domain import Excess

SUMMARY_FILE = "predict.json"  # beside the outputs of a prediction; evaluation quotes it


@dataclass(frozen=True, eq=False)
class EventsOfJets:
    """The events that jets belong to, one after another."""

    collection: str  # of the jets
    offsets: npt.NDArray[np.int64]  # (events + 1,)
    first: int  # entry of the first event
    values: Table  # with one value per event


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of consecutive entries of a file, jets or events: NaN where a jet is not selected, or bad."""

    class_names: tuple[str, ...]
    probabilities: npt.NDArray[np.float64]  # (N, C)
    labels: npt.NDArray[np.int64] | None  # (N,) position in class_names, -1: no class; None: unlabelled file
    observers: Table  # observers and kept branches
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input, a score or a prediction is not finite
    source_file: str
    source_entry: npt.NDArray[np.int64]  # (N,)
    embeddings: npt.NDArray[np.float32] | None = None  # (N, D)
    num_removed: int = 0  # entries left out by --apply-selection
    predictions: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)  # column -> (N,)
    true_values: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)  # column -> (N,)
    events: EventsOfJets | None = None  # None: every entry is a jet
    outside: Mapping[str, Excess] = field(default_factory=dict)  # of the training domain, by variable

    @property
    def scored(self) -> npt.NDArray[np.bool_]:
        """Jets with all scores and predictions, or embeddings if a tagger has nothing else (N,)."""
        numbers = [*self.probabilities.T, *self.predictions.values()]
        if not numbers:
            return self.selected & ~self.bad
        scored: npt.NDArray[np.bool_] = np.isfinite(np.stack(numbers)).all(axis=0)
        return scored

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.selected)
