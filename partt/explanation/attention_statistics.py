"""How sparse attention is, head by head, and which term of the scores makes it so.

Scores are the sum of two terms, content (q k / sqrt d) and pair bias; the softmax of each alone shows what it
would do without the other (arXiv:2412.03673, arXiv:2512.00210). A constant in a row changes nothing, so
terms are compared after subtracting the mean of each row.

Axes: L blocks, H heads, n particles of a jet, S = 3 parts, B bins.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from partt.model.attention_layer import AttentionTerms
from partt.scores.passing import Floats

NEAR_BINARY = 0.9  # a row whose largest weight is above it
EDGES = np.linspace(0, 1, 21)  # of the largest weight of a row
PARTS = ("both", "content", "pair bias")
STATISTICS = ("largest weight", "effective number", "entropy", "near-binary rows")


def row_statistics(weights: Floats) -> Floats:
    """Return the statistics (..., 4) of rows of attention weights (..., n).

    The largest weight; the effective number of particles, 1 / sum a^2; the entropy, divided by ln n, its
    largest value; and whether the largest weight is above 0.9.
    """
    largest = weights.max(axis=-1)
    effective = 1 / np.square(weights).sum(axis=-1)
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -(weights * logarithms).sum(axis=-1) / np.log(max(weights.shape[-1], 2))
    return np.stack([largest, effective, entropy, largest > NEAR_BINARY], axis=-1)


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """Means over jets, each jet being the mean over its rows."""

    blocks: tuple[str, ...]
    means: Floats  # (L, H, S, 4); NaN where a part does not exist
    errors: Floats  # (L, H, S, 4) of the means
    histograms: Floats  # (L, H, B): share of rows by their largest weight
    variances: Floats  # (L, H, 2) of content and pair bias within rows
    correlations: Floats  # (L, H) of content and pair bias within rows; NaN without pair bias
    num_jets: int


def particle_terms(terms: AttentionTerms, num_particles: int) -> tuple[Floats, Floats | None] | None:
    """Return content and bias (H, n, n) among particles; None if no particle is a query."""
    queries, keys = terms.num_tokens
    if terms.content.shape[1] <= queries:
        return None
    rows, columns = slice(queries, queries + num_particles), slice(keys, keys + num_particles)
    content = terms.content[:, rows, columns].double().numpy()
    bias = None if terms.bias is None else terms.bias[:, rows, columns].double().numpy()
    return content, bias


class StatisticsSum:
    """Statistics of heads, added up jet by jet."""

    def __init__(self) -> None:
        self._blocks: tuple[str, ...] = ()
        self._jets: list[Floats] = []  # (L, H, S, 4) of each jet
        self._histograms: Floats | float = 0.0
        self._moments: Floats | float = 0.0

    def add(self, jet: Mapping[str, AttentionTerms], num_particles: int) -> None:
        """Add a jet with at least two particles."""
        found = {name: particle_terms(terms, num_particles) for name, terms in jet.items()}
        pairs = {name: pair for name, pair in found.items() if pair is not None}
        self._blocks = tuple(pairs)
        statistics, histograms, moments = zip(*(_of_block(*pair) for pair in pairs.values()), strict=True)
        self._jets.append(np.stack(statistics))
        self._histograms = self._histograms + np.stack(histograms)
        self._moments = self._moments + np.stack(moments)

    def result(self) -> HeadStatistics:
        """Return the means over jets."""
        jets = np.stack(self._jets)  # (N, L, H, S, 4)
        content, bias, both, rows = np.moveaxis(np.asarray(self._moments), -1, 0)  # (L, H) each
        scale = np.sqrt(content * bias)
        histograms = np.asarray(self._histograms)
        return HeadStatistics(
            self._blocks,
            jets.mean(axis=0),
            jets.std(axis=0) / np.sqrt(max(len(jets) - 1, 1)),
            histograms / histograms.sum(axis=-1, keepdims=True),
            np.stack([content / rows, bias / rows], axis=-1),
            np.divide(both, scale, out=np.full_like(scale, np.nan), where=scale > 0),
            len(jets),
        )


def softmax(scores: Floats) -> Floats:
    """Return the softmax over the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def _of_block(content: Floats, bias: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Return statistics (H, S, 4), counts of the largest weight (H, B), and sums of squares (H, 4)."""
    parts = [content if bias is None else content + bias, content, bias]
    per_row = [None if scores is None else row_statistics(softmax(scores)) for scores in parts]  # (H, n, 4)
    absent = np.full((len(content), 4), np.nan)
    statistics = np.stack([absent if rows is None else rows.mean(axis=1) for rows in per_row], axis=1)
    both = per_row[0]
    assert both is not None  # noqa: S101 - for mypy
    counts = np.stack([np.histogram(head[:, 0], EDGES)[0] for head in both]).astype(float)
    centred = [np.zeros_like(content) if part is None else part - part.mean(axis=-1, keepdims=True)
               for part in (content, bias)]  # fmt: skip
    moments = [(first * second).sum(axis=(1, 2)) for first, second in
               ((centred[0], centred[0]), (centred[1], centred[1]), (centred[0], centred[1]))]  # fmt: skip
    num_entries = np.full(len(content), float(content.shape[1] * content.shape[2]))
    return statistics, counts, np.stack([*moments, num_entries], axis=-1)
