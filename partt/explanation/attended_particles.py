"""Which particles the class token attends to, and whether particles attend to their own subjet.

All numbers are relative to uniform attention, 1 / n for each of n particles: 1 means as much as chance.

Axes: N jets, n jets of one class, T particles of all jets, G categories, C classes, R repetitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from partt.explanation.particle_facts import KIND_NAMES, ParticleFacts
from partt.scores.passing import Floats

NUM_REPETITIONS = 200
QUANTILES = (0.15866, 0.84134)
MIN_PARTICLES = 10  # of a category in a class: fewer give no number
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Categories:
    """Categories of particles; -1: in none."""

    title: str
    names: tuple[str, ...]
    numbers: Numbers  # (T,)


@dataclass(frozen=True, eq=False)
class RelativeAttention:
    """Attention relative to the uniform share, by class and category; NaN where there are too few."""

    title: str
    categories: tuple[str, ...]
    values: Floats  # (C, G)
    low: Floats  # (C, G)
    high: Floats  # (C, G)
    num_particles: Numbers  # (C, G)


def categories_of(facts: ParticleFacts) -> list[Categories]:
    """Return all ways to sort particles that the facts allow."""
    found = []
    if facts.kinds is not None:
        known = facts.kinds < len(KIND_NAMES) - 1
        found.append(Categories("type", KIND_NAMES[:-1], np.where(known, facts.kinds, -1)))
    if facts.charges is not None:
        found.append(Categories("charge", ("−", "0", "+"), (np.sign(facts.charges) + 1).astype(np.int64)))
    if facts.significances is not None:
        found.append(_binned("|d0| / error", facts.significances, (0, 1, 3, 10, np.inf), facts.charges))
    if facts.pt_ranks is not None:
        edges, names = (0, 1, 2, 3, 8, 16, np.inf), ("1", "2", "3", "4–8", "9–16", "17 and more")
        found.append(Categories("pT rank", names, _bin_numbers(facts.pt_ranks, edges)))
    if facts.places is not None:
        distances = np.hypot(*facts.places.T)
        found.append(_binned("ΔR to the jet axis", distances, (0, 0.05, 0.1, 0.2, 0.4, np.inf)))
    return found


def _binned(title: str, values: Floats, edges: Sequence[float], charges: Floats | None = None) -> Categories:
    names = [f"{low:g}–{high:g}" if np.isfinite(high) else f"above {low:g}"
             for low, high in pairwise(edges)]  # fmt: skip
    numbers = _bin_numbers(values, edges)
    if charges is not None:
        numbers[charges == 0] = -1  # neutral particles have no track
    return Categories(title, tuple(names), numbers)


def _bin_numbers(values: npt.NDArray[np.generic], edges: Sequence[float]) -> Numbers:
    numbers = np.searchsorted(edges, values, side="right") - 1
    return np.where(np.isfinite(values.astype(float)) & (numbers < len(edges) - 1), numbers, -1)


def relative_attention(
    attention: Floats, categories: Categories, jets: Numbers, labels: Numbers, num_classes: int
) -> RelativeAttention:
    """Return attention (T,), which adds up to 1 in each jet, relative to the uniform share.

    For each class: the sum over particles of a category, divided by the sum of 1 / n over the same ones.
    """
    num_categories, num_jets = len(categories.names), len(labels)
    lengths = np.bincount(jets, minlength=num_jets)
    inside = categories.numbers >= 0
    cells = jets[inside] * num_categories + categories.numbers[inside]
    size = num_jets * num_categories

    def sums(values: Floats) -> Floats:
        found: Floats = np.bincount(cells, values[inside], minlength=size).astype(np.float64)
        return found.reshape(num_jets, num_categories)

    given, uniform, counts = sums(attention), sums(1.0 / lengths[jets]), sums(np.ones(len(jets)))
    shares = _Shares(given, uniform, counts)
    return _by_class(categories.title, categories.names, shares, labels, num_classes)


def subjet_attention(
    title: str,
    attention: Sequence[Floats],
    subjets: Sequence[Numbers | None],
    labels: Numbers,
    num_classes: int,
) -> RelativeAttention:
    """Return attention inside and between subjets, relative to uniform attention.

    `attention` (P, P) of each jet, a mean over heads and blocks; `subjets` (P,) the subjet of each particle,
    or None for jets that are left out.
    """
    given, uniform, counts = (np.zeros((len(labels), 2)) for _ in range(3))
    for jet, (weights, numbers) in enumerate(zip(attention, subjets, strict=True)):
        if numbers is None:
            continue
        same = numbers[:, None] == numbers
        inside = float((weights * same).sum() / weights.sum())
        given[jet] = inside, 1 - inside
        uniform[jet] = same.mean(), 1 - same.mean()
        counts[jet] = len(numbers)
    shares = _Shares(given, uniform, counts)
    return _by_class(title, ("inside", "between"), shares, labels, num_classes)


@dataclass(frozen=True, eq=False)
class _Shares:
    """Of jets and categories, (N, G) each."""

    given: Floats  # attention
    uniform: Floats  # the same, if it were uniform
    counts: Floats  # particles


def _by_class(
    title: str,
    names: tuple[str, ...],
    shares: _Shares,
    labels: Numbers,
    num_classes: int,
) -> RelativeAttention:
    """Return the ratio of sums over the jets of each class, with a bootstrap of jets."""
    shape = (num_classes, len(names))
    values, low, high = (np.full(shape, np.nan) for _ in range(3))
    numbers = np.zeros(shape, dtype=np.int64)
    for number in range(num_classes):
        own = labels == number
        if not own.any():
            continue
        times = np.random.default_rng(number).poisson(1.0, (NUM_REPETITIONS, own.sum()))
        numbers[number] = shares.counts[own].sum(axis=0)
        above, below = shares.given[own].sum(axis=0), shares.uniform[own].sum(axis=0)
        enough = (numbers[number] >= MIN_PARTICLES) & (below > 0)
        values[number, enough] = above[enough] / below[enough]
        drawn, expected = times @ shares.given[own], times @ shares.uniform[own]  # (R, G)
        ratios = np.divide(drawn, expected, out=np.full_like(drawn, np.nan), where=expected > 0)
        for category in np.flatnonzero(enough):
            low[number, category], high[number, category] = np.nanquantile(ratios[:, category], QUANTILES)
    return RelativeAttention(title, names, values, low, high, numbers)
