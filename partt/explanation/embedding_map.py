"""The embedding of jets: its main directions, and how well a linear fit finds observables in it.

Axes: N jets, D width of the embedding, K components.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partt.scores.passing import Floats

NUM_COMPONENTS = 2
MIN_JETS_PER_PARAMETER = 2


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Principal components of the embedding, and linear fits."""

    components: Floats  # (N, K) of each jet
    variances: Floats  # (K,) share of the variance along each
    fits: Mapping[str, float]  # observable -> R² on jets that were not fitted
    width: int


def map_embeddings(embeddings: Floats, observables: Mapping[str, Floats]) -> EmbeddingMap:
    """Return the map of embeddings (N, D); `observables` (N,) are fitted by linear functions of them."""
    centred = embeddings.astype(np.float64) - embeddings.mean(axis=0)
    _, scales, directions = np.linalg.svd(centred, full_matrices=False)
    directions = directions * np.where(
        np.take_along_axis(directions, np.abs(directions).argmax(axis=1)[:, None], axis=1) < 0, -1, 1
    )  # a sign that is unique
    shares = scales**2 / max(float((scales**2).sum()), 1e-300)
    missing = max(0, NUM_COMPONENTS - len(shares))  # of a single jet, or of embeddings with one number
    return EmbeddingMap(
        np.pad(centred @ directions[:NUM_COMPONENTS].T, ((0, 0), (0, missing))),
        np.pad(shares[:NUM_COMPONENTS], (0, missing)),
        {name: linear_fit(centred, values) for name, values in observables.items()},
        embeddings.shape[1],
    )


def linear_fit(inputs: Floats, values: Floats) -> float:
    """Return R² of a linear fit to every second jet, on the others; NaN if there are too few jets."""
    finite = np.isfinite(values)
    inputs, values = inputs[finite], values[finite].astype(np.float64)
    rows = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    if len(rows) < 2 * MIN_JETS_PER_PARAMETER * rows.shape[1] or values[1::2].var() == 0:
        return float("nan")
    weights, *_ = np.linalg.lstsq(rows[::2], values[::2], rcond=1e-6)
    errors = values[1::2] - rows[1::2] @ weights
    return float(1 - errors.var() / values[1::2].var())
