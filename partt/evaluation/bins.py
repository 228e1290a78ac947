"""Bins of observers: which bin each jet is in, and round edges.

Axes: n jets, B bins.
"""

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array
from partt.scores.passing import Floats

TAIL = 0.001  # of the jets, on either side, may be outside of default edges


def bin_numbers(values: Array, edges: Floats) -> npt.NDArray[np.int64]:
    """Return the bin (n,) of each jet, -1 if it is outside; the last bin includes its upper edge."""
    numbers = np.searchsorted(edges, values, side="right") - 1
    numbers[values == edges[-1]] = len(edges) - 2
    numbers[numbers >= len(edges) - 1] = -1  # NaN too: it sorts behind all numbers
    return numbers


def round_edges(values: Array, num_bins: int) -> Floats | None:
    """Return round edges that hold nearly all jets; None if the values are all equal, or never finite."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - slow to import

    known = values[np.isfinite(values)]
    if len(known) == 0 or known.min() == known.max():
        return None
    low, high = np.quantile(known.astype(np.float64), [TAIL, 1 - TAIL])
    return np.asarray(
        MaxNLocator(num_bins, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high), dtype=np.float64
    )
