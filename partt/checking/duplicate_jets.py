"""Jets and files that occur twice: in two sets (train and test), or within one.

Axes: N jets, T particles of all jets together.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from partt.checking.findings import CheckReport
from partt.data.files.tables import FileInfo
from partt.data.jagged import Array, Jagged
from partt.data.variables import Variables

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: multiplying by it spreads the bits


def jet_hashes(variables: Variables) -> npt.NDArray[np.uint64]:
    """Return a hash of each jet with particles, from all values of its particles in order.

    Copies of a jet have the same hash.
    """
    columns = {name: column for name, column in variables.branches.items() if isinstance(column, Jagged)}
    if not columns:
        return np.empty(0, np.uint64)
    result = np.zeros(variables.num_jets, dtype=np.uint64)
    has_particles = np.zeros(variables.num_jets, dtype=bool)
    for name in sorted(columns):
        offsets, lengths = columns[name].offsets, columns[name].lengths
        position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        mixed = (_bits(columns[name].contents) + GOLDEN) * (2 * position.astype(np.uint64) + np.uint64(1))
        mixed = (mixed ^ (mixed >> np.uint64(31))) * GOLDEN
        filled = np.flatnonzero(lengths)
        if len(filled):
            result[filled] ^= np.add.reduceat(mixed, offsets[filled])
        result = (result ^ lengths.astype(np.uint64)) * GOLDEN
        result ^= result >> np.uint64(29)
        has_particles[filled] = True
    return result[has_particles]


def find_duplicates(
    files: Mapping[str, Sequence[FileInfo]],
    hashes: Mapping[str, npt.NDArray[np.uint64]],
    report: CheckReport,
) -> None:
    """Report files and jets that are in two sets, and copies within a set; `hashes` are those of all jets."""
    for first, second in combinations(files, 2):
        copies = {file.identity: file.url for file in files[first]}
        for file in files[second]:
            if file.identity in copies:
                report.error(file.url, f"is in {second} and, as {copies[file.identity]}, in {first}")
        shared = np.intersect1d(hashes[first], hashes[second])
        if len(shared):
            text = f"{len(shared)} jets are both in {first} and in {second}: results would be too good"
            report.error("jets", text)
    for name, of_set in hashes.items():
        num_copies = len(of_set) - len(np.unique(of_set))
        if num_copies:
            report.warn("jets", f"{num_copies} of {len(of_set)} jets in {name} are copies of others")


def _bits(values: Array) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
