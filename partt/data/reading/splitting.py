"""Random split of the entries of files into training and validation.

The part of an entry depends only on the seed, the name of the file and the number of the entry.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from partt.errors import without_secrets


@dataclass(frozen=True)
class Split:
    """One of the two parts of a split."""

    part: Literal["train", "validation"]
    fraction: float  # of the entries, for validation
    seed: int

    def contains(self, url: str, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether entries (N,) of a file belong to this part."""
        name = without_secrets(url).rsplit("/", 1)[-1]  # a new token does not change the split
        validation = _uniform(f"{self.seed} {name}", entries) < self.fraction
        return validation if self.part == "validation" else ~validation

    def describe(self) -> str:
        """Return the split in words."""
        return f"{self.part} part, validation fraction {self.fraction:g}, seed {self.seed}"


def _uniform(key: str, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each entry: splitmix64, seeded with a hash of the key."""
    start = np.uint64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little"))
    x = start + entries.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
