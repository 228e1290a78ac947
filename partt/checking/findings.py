"""Report of `partt check`; it is filled while files are read."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from partt.data.jagged import Array, Column, Jagged
from partt.data.training_domain import QUANTILES, Excess, add_up
from partt.errors import without_secrets

MAX_VALUES_FOR_MEDIAN = 200_000


@dataclass(frozen=True)
class Finding:
    """An error (a job would stop) or a warning (something looks wrong)."""

    severity: Literal["error", "warning"]
    where: str
    text: str


@dataclass
class ValueSummary:
    """Count, range and median of the values of a branch or an input."""

    name: str
    type: str = ""  # of a branch, as in the first file
    num_values: int = 0
    num_nan: int = 0
    num_infinite: int = 0
    minimum: float = np.inf
    maximum: float = -np.inf
    is_whole: bool = True  # all finite values are whole numbers
    first_values: list[Array] = field(default_factory=list)  # finite ones, for the median

    def add(self, column: Column) -> None:
        """Add the values of one more chunk."""
        values = column.contents if isinstance(column, Jagged) else np.atleast_1d(column)
        values = values.astype(np.float64)
        finite = values[np.isfinite(values)]
        self.num_values += len(values)
        self.num_nan += int(np.isnan(values).sum())
        self.num_infinite += int(np.isinf(values).sum())
        if len(finite):
            self.minimum = min(self.minimum, float(finite.min()))
            self.maximum = max(self.maximum, float(finite.max()))
            self.is_whole = self.is_whole and bool((finite == np.floor(finite)).all())
        if sum(map(len, self.first_values)) < MAX_VALUES_FOR_MEDIAN:
            self.first_values.append(finite)

    @property
    def num_finite(self) -> int:
        """Number of values that are neither NaN nor infinite."""
        return self.num_values - self.num_nan - self.num_infinite

    @property
    def median(self) -> float:
        """Median of the first values."""
        values = np.concatenate(self.first_values) if self.first_values else np.empty(0)
        return float(np.median(values)) if len(values) else np.nan


@dataclass
class SampleSummary:
    """Files, entries and jets of one sample."""

    name: str
    num_files: int = 0
    num_entries: int = 0
    num_read: int = 0
    num_jets: int = 0  # read: more or fewer than entries if these are events
    num_selected: int = 0
    jets_by_class: dict[str, int] = field(default_factory=dict)


@dataclass
class CollectionSummary:
    """Particles per jet of one collection."""

    name: str
    limit: int | None  # `length` in the data config
    is_main: bool
    num_without: int = 0  # jets that have none in the file
    num_cut_jets: int = 0
    longest: int = 0  # before the cut
    num_particles: int = 0  # after the cut
    num_masked: int = 0  # of these, left out by the mask

    def add(self, in_file: Array, used: Array) -> None:
        """Add the numbers of particles (N,) of some jets, in the file and in the inputs of the network."""
        kept = in_file if self.limit is None else np.minimum(in_file, self.limit)
        self.num_without += int((in_file == 0).sum())
        self.num_cut_jets += int((in_file > kept).sum())
        self.longest = max(self.longest, int(in_file.max(initial=0)))
        self.num_particles += int(kept.sum())
        self.num_masked += int((kept - used).sum())


@dataclass
class ParticleClassSummary:
    """Particles that the network gets, by class."""

    name: str
    collection: str
    by_class: dict[str, int]
    num_unknown: int = 0

    def add(self, numbers: Array) -> None:
        """Add the class numbers (T,) of particles; -1: not known."""
        counts = np.bincount(numbers + 1, minlength=1 + len(self.by_class)).tolist()
        self.num_unknown += counts[0]
        for name, count in zip(self.by_class, counts[1:], strict=True):
            self.by_class[name] += count


@dataclass
class DomainSummary:
    """Values of a variable, to compare with those of a training."""

    training: list[float]  # quantiles of partt.data.training_domain
    excess: Excess | None = None  # None: no values yet
    first_values: list[Array] = field(default_factory=list)

    def add(self, values: Array, counted: Excess) -> None:
        """Add the values of some jets, and how many are outside."""
        known = {} if self.excess is None else {"": self.excess}
        self.excess = add_up(known, {"": counted})[""]
        if sum(map(len, self.first_values)) < MAX_VALUES_FOR_MEDIAN:
            self.first_values.append(values)

    @property
    def quantiles(self) -> list[float]:
        """The same quantiles of the first values."""
        return [float(value) for value in np.quantile(np.concatenate(self.first_values), QUANTILES)]


@dataclass
class CheckReport:
    """Everything that a check found."""

    samples: dict[str, SampleSummary] = field(default_factory=dict)
    branches: dict[str, ValueSummary] = field(default_factory=dict)
    inputs: dict[str, ValueSummary] = field(default_factory=dict)
    inputs_by_group: dict[str, tuple[str, ...]] = field(default_factory=dict)  # collection or group of jets
    targets: dict[str, ValueSummary] = field(default_factory=dict)  # NaN: not known
    particle_classes: dict[str, ParticleClassSummary] = field(default_factory=dict)
    collections: dict[str, CollectionSummary] = field(default_factory=dict)
    domain: dict[str, DomainSummary] = field(default_factory=dict)  # of a tagger, by variable
    findings: list[Finding] = field(default_factory=list)
    num_jets: int = 0  # selected, of those read
    num_bad_jets: int = 0
    first_bad_jet: str | None = None
    sum_weights: float = 0.0

    def __repr__(self) -> str:
        """Return what a prompt shows: whether a job would run, and what was found."""
        state = "not ready" if self.num_errors else "ready"
        num_files = sum(sample.num_files for sample in self.samples.values())
        found = f"{self.num_errors} errors, {len(self.findings) - self.num_errors} warnings"
        return f"<CheckReport: {state}; {num_files} files, {self.num_jets:,} jets, {found}>"

    @property
    def num_errors(self) -> int:
        """Number of findings that would stop a job."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def is_complete(self) -> bool:
        """Whether every entry was read."""
        return all(sample.num_read == sample.num_entries for sample in self.samples.values())

    def error(self, where: str, text: str) -> None:
        """Add something that would stop a job."""
        self.findings.append(Finding("error", without_secrets(where), without_secrets(text)))

    def warn(self, where: str, text: str) -> None:
        """Add something that looks wrong."""
        self.findings.append(Finding("warning", without_secrets(where), without_secrets(text)))
