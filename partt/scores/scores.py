"""The record that goes from prediction to evaluation, and the columns that it becomes in a file.

Axes: N jets, C classes, D width of the embedding.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Column, Table
from partt.errors import ConfigError
from partt.scores.discriminants import Discriminant


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of consecutive entries of a file: NaN where a jet is not selected, or bad."""

    class_names: tuple[str, ...]
    probabilities: npt.NDArray[np.float64]  # (N, C)
    labels: npt.NDArray[np.int64] | None  # (N,) position in class_names; -1: no proper label; None: no labels
    weights: npt.NDArray[np.float32]  # (N,) from the config's weight branches, or 1
    observers: Table  # observers and kept branches
    selected: npt.NDArray[np.bool_]  # (N,)
    bad: npt.NDArray[np.bool_]  # (N,) selected, but an input or the result is not finite
    source_file: str
    source_entry: npt.NDArray[np.int64]  # (N,)
    tagger_hash: str
    embeddings: npt.NDArray[np.float32] | None = None  # (N, D)
    num_removed: int = 0  # entries that were there, but left out by --apply-selection

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.selected)


def column_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the classes as they stand in names of columns, where ROOT allows letters, digits and _."""
    names = tuple(re.sub(r"\W", "_", name, flags=re.ASCII) for name in class_names)
    for name, written in zip(class_names, names, strict=True):
        if names.count(written) > 1:
            both = " and ".join(
                repr(other) for other, same in zip(class_names, names, strict=True) if same == written
            )
            raise ConfigError(
                f"the columns of the classes {both} would have one name, score_{written}; {name!r}"
            )
    return names


def own_columns(
    class_names: Sequence[str],
    discriminants: Sequence[Discriminant],
    *,
    labels: bool,
    embeddings: bool,
) -> list[str]:
    """Return the names of the columns that prediction adds, without observers and kept branches."""
    names = column_names(class_names)
    return [
        *(f"score_{name}" for name in names),
        *(discriminant.name for discriminant in discriminants),
        *(f"label_{name}" for name in names if labels),
        *(["embedding"] if embeddings else []),
        "selected",
        "bad",
        "source_file",
        "source_entry",
    ]


def output_table(scores: Scores, discriminants: Sequence[Discriminant]) -> Table:
    """Return the columns that are written to a file, in their order."""
    names = column_names(scores.class_names)
    table: dict[str, Column] = {
        f"score_{name}": values.astype(np.float32)
        for name, values in zip(names, scores.probabilities.T, strict=True)
    }
    table |= {item.name: item.values(scores.probabilities).astype(np.float32) for item in discriminants}
    if scores.labels is not None:
        table |= {
            f"label_{name}": (scores.labels == number).astype(np.int32) for number, name in enumerate(names)
        }
    table |= scores.observers
    if scores.embeddings is not None:
        table["embedding"] = scores.embeddings
    table["selected"] = scores.selected
    table["bad"] = scores.bad
    table["source_file"] = np.full(len(scores), scores.source_file)
    table["source_entry"] = scores.source_entry
    return table
