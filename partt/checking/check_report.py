"""The record of what `partt check` finds; it grows while files are read."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from partt.data.jagged import Array, Column, Jagged

MAX_VALUES_FOR_MEDIAN = 200_000


@dataclass(frozen=True)
class Finding:
    """Something wrong ("error": a job would stop) or suspicious ("warning")."""

    severity: Literal["error", "warning"]
    where: str
    text: str


@dataclass
class ValueSummary:
    """What the values of a branch or an input look like."""

    name: str
    type: str = ""  # of a branch, as in the first file
    num_values: int = 0
    num_nan: int = 0
    num_infinite: int = 0
    minimum: float = np.inf
    maximum: float = -np.inf
    sample: list[Array] = field(default_factory=list)  # the first finite values

    def add(self, column: Column) -> None:
        """Count the values of one more chunk."""
        values = column.contents if isinstance(column, Jagged) else np.atleast_1d(column)
        values = values.astype(np.float64)
        finite = values[np.isfinite(values)]
        self.num_values += len(values)
        self.num_nan += int(np.isnan(values).sum())
        self.num_infinite += int(np.isinf(values).sum())
        if len(finite):
            self.minimum = min(self.minimum, float(finite.min()))
            self.maximum = max(self.maximum, float(finite.max()))
        if sum(map(len, self.sample)) < MAX_VALUES_FOR_MEDIAN:
            self.sample.append(finite)

    @property
    def num_finite(self) -> int:
        """How many values are ordinary numbers."""
        return self.num_values - self.num_nan - self.num_infinite

    @property
    def median(self) -> float:
        """Median of the sample."""
        sample = np.concatenate(self.sample) if self.sample else np.empty(0)
        return float(np.median(sample)) if len(sample) else np.nan


@dataclass
class GroupSummary:
    """What a group of files holds."""

    name: str
    num_files: int = 0
    num_entries: int = 0
    num_read: int = 0
    num_selected: int = 0
    jets_by_class: dict[str, int] = field(default_factory=dict)


@dataclass
class CheckReport:
    """All that a check has found."""

    groups: dict[str, GroupSummary] = field(default_factory=dict)
    branches: dict[str, ValueSummary] = field(default_factory=dict)
    inputs: dict[str, ValueSummary] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    num_jets: int = 0  # selected, of those read
    num_without_particles: int = 0
    num_cut_jets: int = 0
    num_bad_jets: int = 0
    longest_jet: int = 0
    first_bad_jet: str | None = None
    sum_weights: float = 0.0

    @property
    def num_errors(self) -> int:
        """How many findings would stop a job."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def is_complete(self) -> bool:
        """Whether every entry was read."""
        return all(group.num_read == group.num_entries for group in self.groups.values())

    def error(self, where: str, text: str) -> None:
        """Note what would stop a job."""
        self.findings.append(Finding("error", where, text))

    def warn(self, where: str, text: str) -> None:
        """Note what looks wrong."""
        self.findings.append(Finding("warning", where, text))
