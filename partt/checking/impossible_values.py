"""Values that cannot be measurements: negative errors, and numbers that stand for "not measured"."""

import re

import numpy as np

from partt.checking.findings import CheckReport, ValueSummary

ERROR = re.compile(r"(?:^|_|[a-z0-9])(?:err|error|unc|sigma)(?:_|\d|$)", re.IGNORECASE)
MIN_FRACTION = 0.01  # of the values that a sentinel has at least
MIN_COUNT = 20
MIN_OTHERS = 20  # different values beside it: a column with few values is not a measurement
FAR = 10.0  # times larger than 99 % of the other values: no measurement


def check_values(report: CheckReport) -> None:
    """Warn of branches, or else of inputs computed from them, with values that cannot be measurements.

    A frequent value of a computed input is what its formula makes, as of clipped values: no sentinel.
    """
    found = [_warn(values, report, computed=False) for values in report.branches.values()]
    if not any(found):
        for name, values in report.inputs.items():
            if name not in report.branches:
                _warn(values, report, computed=True)


def _warn(values: ValueSummary, report: CheckReport, *, computed: bool) -> bool:
    if not values.first_values or values.is_whole:
        return False
    sample = np.concatenate(values.first_values)
    spike = None if computed else _sentinel(sample)
    if spike is not None:
        value, fraction = spike
        report.warn(
            values.name,
            f'{fraction:.1%} of the values are exactly {value:g}: a sentinel, "not measured"? Replace it by '
            "`sentinels` of an input map, or by np.where in new_variables",
        )
        return True
    if ERROR.search(values.name) and (sample < 0).any():
        report.warn(
            values.name,
            f"{np.mean(sample < 0):.2%} of the values are negative (down to {values.minimum:g}), but by its "
            "name it is an error",
        )
        return True
    return False


def _sentinel(sample: np.ndarray) -> tuple[float, float] | None:
    """Return the most frequent value, and its fraction, if it is negative or far away from the others."""
    numbers, counts = np.unique(sample[sample != 0], return_counts=True)
    if len(numbers) <= MIN_OTHERS:
        return None
    value, count = float(numbers[counts.argmax()]), int(counts.max())
    others = np.abs(sample[(sample != value) & (sample != 0)])
    is_odd = value < 0 or value > FAR * np.quantile(others, 0.99)
    is_frequent = count >= max(MIN_COUNT, MIN_FRACTION * len(sample))
    return (value, count / len(sample)) if is_odd and is_frequent else None
