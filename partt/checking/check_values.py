"""Slips that no type can show: units, and jets that stand in two places.

Axes: N jets, T particles of all jets together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from partt.checking.check_report import CheckReport, ValueSummary
from partt.data.files.tables import FileInfo
from partt.data.jagged import Array, Jagged
from partt.data.jet_batch import JetBatch
from partt.data.variables import Variables

BEAM_ENERGY = 7000.0  # GeV: no jet of the LHC has more, so a larger typical pT is in MeV
SOFTEST_JET = 2.0  # GeV: a smaller typical pT is in TeV
FINEST_ERROR = 0.007  # mm: trackers measure impact parameters no better, so a smaller typical error is in cm
IMPACT_ERROR = re.compile(r"(d0|dz|dxy|ip).*err", re.IGNORECASE)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads the bits


@dataclass
class UnitCheck:
    """Typical values by file: a slip in one file of many is the worst, because a network learns it."""

    jet_pt: dict[str, ValueSummary] = field(default_factory=dict)
    impact_errors: dict[tuple[str, str], ValueSummary] = field(default_factory=dict)  # by branch and file

    def add(self, variables: Variables, batch: JetBatch) -> None:
        """Note the values of some jets of one file."""
        if batch.momenta is not None:
            summary = self.jet_pt.setdefault(variables.url, ValueSummary("jet pT"))
            summary.add(_jet_pt(batch))
        for name, column in variables.branches.items():
            if IMPACT_ERROR.search(name) and isinstance(column, Jagged):
                summary = self.impact_errors.setdefault((name, variables.url), ValueSummary(name))
                summary.add(column.contents[column.contents > 0])

    def report(self, report: CheckReport) -> None:
        """Warn of units that look wrong, once for each kind of slip."""
        slips: dict[tuple[str, str], list[tuple[str, float]]] = {}
        for url, summary in self.jet_pt.items():
            unit = "MeV" if summary.median > BEAM_ENERGY else "TeV" if summary.median < SOFTEST_JET else None
            if unit:
                text = f"these look like {unit}; partt expects GeV"
                slips.setdefault(("momenta", text), []).append((url, summary.median))
        for (name, url), summary in self.impact_errors.items():
            if summary.median < FINEST_ERROR:
                slips.setdefault((name, "this looks like cm; the configs expect mm"), []).append(
                    (url, summary.median)
                )
        for (name, text), found in slips.items():
            url, median = found[0]
            what = "the median jet pT" if name == "momenta" else "the median"
            report.warn(name, f"{what} is {median:.2g} in {url} ({len(found)} such files): {text}")


def fingerprints(variables: Variables) -> npt.NDArray[np.uint64]:
    """Return a number per jet with particles that two jets share only if they are copies.

    Made of the bits of all values that were read for its particles, in their order.
    """
    columns = {name: column for name, column in variables.branches.items() if isinstance(column, Jagged)}
    if not columns:
        return np.empty(0, np.uint64)
    offsets = next(iter(columns.values())).offsets
    filled = np.flatnonzero(np.diff(offsets))
    result = np.diff(offsets)[filled].astype(np.uint64)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    for name in sorted(columns):
        mixed = (_bits(columns[name].contents) + GOLDEN) * (2 * position.astype(np.uint64) + np.uint64(1))
        mixed = (mixed ^ (mixed >> np.uint64(31))) * GOLDEN
        result = (result ^ np.add.reduceat(mixed, offsets[filled])) * GOLDEN if len(filled) else result
        result ^= result >> np.uint64(29)
    return result


def find_duplicates(
    files: Mapping[str, Sequence[FileInfo]],
    jets: Mapping[str, npt.NDArray[np.uint64]],
    report: CheckReport,
) -> None:
    """Note files and jets that are in two sets, and copies inside a set."""
    for first, second in combinations(files, 2):
        copies = {file.identity: file.url for file in files[first]}
        for file in files[second]:
            if file.identity in copies:
                report.error(file.url, f"is in {second} and, as {copies[file.identity]}, in {first}")
        shared = np.intersect1d(jets[first], jets[second])
        if len(shared):
            text = f"{len(shared)} jets are both in {first} and in {second}: results would be too good"
            report.error("jets", text)
    for name, fingerprints_of_set in jets.items():
        num_copies = len(fingerprints_of_set) - len(np.unique(fingerprints_of_set))
        if num_copies:
            report.warn(
                "jets", f"{num_copies} of {len(fingerprints_of_set)} jets in {name} are copies of others"
            )


def _bits(values: Array) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)


def _jet_pt(batch: JetBatch) -> npt.NDArray[np.float64]:
    """Return the transverse momentum of each jet with particles, in the files' unit."""
    momenta = np.empty((0, 4)) if batch.momenta is None else batch.momenta.numpy()
    usable = (batch.lengths > 0).numpy() & ~batch.bad.numpy()
    jet_of_row = np.repeat(np.arange(len(batch)), batch.lengths.numpy())
    px, py = (np.bincount(jet_of_row, momenta[:, axis], len(batch)) for axis in (0, 1))
    return np.asarray(np.hypot(px, py)[usable], dtype=np.float64)
