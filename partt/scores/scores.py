"""Scores of a tagger, as prediction writes them.

Axes: N jets, C classes, D width of the embedding.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Table

SUMMARY_FILE = "predict.json"  # beside the outputs of a prediction; evaluation quotes it


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of consecutive entries of a file: NaN where a jet is not selected, or bad."""

    class_names: tuple[str, ...]
    probabilities: npt.NDArray[np.float64]  # (N, C)
    labels: npt.NDArray[np.int64] | None  # (N,) position in class_names, -1: no class; None: unlabelled file
    observers: Table  # observers and kept branches
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input or a score is not finite
    source_file: str
    source_entry: npt.NDArray[np.int64]  # (N,)
    embeddings: npt.NDArray[np.float32] | None = None  # (N, D)
    num_removed: int = 0  # entries left out by --apply-selection

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.selected)
