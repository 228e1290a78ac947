"""Working points: thresholds for requested efficiencies, and efficiencies in bins of observers.

Axes: B bins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.errors import ConfigError
from partt.evaluation.bins import bin_numbers
from partt.pages.names import shorten
from partt.scores.intervals import Interval, interval_at, interval_at_fitted, interval_in_bins
from partt.scores.passing import Floats, Passing


@dataclass(frozen=True)
class Request:
    """A signal efficiency to reach (eps_s), or a background efficiency not to exceed (eps_b)."""

    of: Literal["eps_s", "eps_b"]
    efficiency: float

    @property
    def name(self) -> str:
        """The request as users write it."""
        return f"{self.of}={self.efficiency:g}"


def parse_requests(texts: Sequence[str]) -> tuple[Request, ...]:
    """Read "eps_s=0.5,0.8" and "eps_b=0.01"."""
    requests = []
    for text in texts:
        of, _, values = text.partition("=")
        for value in values.split(","):
            try:
                efficiency = float(value)
            except ValueError:
                efficiency = 0.0
            if not 0 < efficiency < 1 or of not in {"eps_s", "eps_b"}:
                raise ConfigError(
                    f"working point {shorten(text)!r}: should be like eps_s=0.5,0.8 or eps_b=0.01, "
                    "between 0 and 1"
                )
            requests.append(Request("eps_s" if of == "eps_s" else "eps_b", efficiency))
    return tuple(dict.fromkeys(requests))


@dataclass(frozen=True, eq=False)
class WorkingPoint:
    """A threshold and its efficiencies."""

    request: Request
    threshold: float
    signal: Interval  # of single numbers (1,)
    background: Interval
    num_signal_passing: int
    num_background_passing: int


def find_working_point(signal: Passing, background: Passing, request: Request) -> WorkingPoint:
    """Return the highest threshold that reaches eps_s, or the lowest that does not exceed eps_b.

    The interval of the other efficiency includes the fluctuation of the threshold.
    """
    asked = np.array([request.efficiency])
    if request.of == "eps_s":
        threshold = signal.threshold_for(asked)
        found = interval_at(signal, threshold), interval_at_fitted(background, threshold, signal, asked)
    else:
        threshold = background.threshold_within(asked)
        found = interval_at_fitted(signal, threshold, background, asked), interval_at(background, threshold)
    return WorkingPoint(
        request,
        float(threshold[0]),
        *found,
        int(signal.num_passing(threshold)[0]),
        int(background.num_passing(threshold)[0]),
    )


@dataclass(frozen=True, eq=False)
class BinnedEfficiency:
    """Efficiencies in bins of one or several observers; the last observer varies fastest."""

    edges: Mapping[str, Floats]  # observer -> (B_i + 1,)
    efficiency: Interval  # (B,) each, B the product over observers; NaN in empty bins
    num_jets: npt.NDArray[np.int64]  # (B,)
    overall: float  # efficiency of all jets, also those outside the bins


def binned_efficiency(
    passed: npt.NDArray[np.bool_],
    weights: Array | None,
    observers: Mapping[str, Array],
    edges: Mapping[str, Floats],
) -> BinnedEfficiency:
    """Return the efficiency of jets in bins; jets outside the edges are in no bin."""
    overall = float(np.average(passed, weights=None if weights is None else weights.astype(np.float64)))
    shape = tuple(len(values) - 1 for values in edges.values())
    num_bins = int(np.prod(shape))
    cells = np.zeros(len(passed), dtype=np.int64)
    is_inside = np.ones(len(passed), dtype=bool)
    for (name, values), size in zip(edges.items(), shape, strict=True):
        numbers = bin_numbers(observers[name], values)
        is_inside &= numbers >= 0
        cells = cells * size + numbers
    cells, passed = cells[is_inside], passed[is_inside]
    weight = np.ones(len(cells)) if weights is None else weights[is_inside].astype(np.float64)
    sums = (
        np.bincount(cells, values, minlength=num_bins).astype(np.float64)
        for values in (weight, weight * passed, weight**2, weight**2 * passed)
    )
    num_jets = np.bincount(cells, minlength=num_bins)
    return BinnedEfficiency(dict(edges), interval_in_bins(*sums), num_jets, overall)
