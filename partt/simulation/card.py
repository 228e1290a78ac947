"""Detector cards: YAML files, validated, and the table of impact-parameter resolutions beside each."""

import csv
import hashlib
import itertools
import json
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from partt.config import Record, load_record
from partt.errors import ConfigError
from partt.regular_files import require_regular

DEFAULT_CARD = Path(str(resources.files("partt"))) / "simulation" / "cards" / "jetclass.yaml"
TABLE_COLUMNS = ["abs_eta_min", "abs_eta_max", "pt_min_gev", "pt_max_gev", "sigma_d0_mm", "sigma_dz_mm"]

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Interval = Annotated[list[NotNegative | None], Field(min_length=2, max_length=2)]  # [lower, upper or null]


def bounds(interval: Interval) -> tuple[float, float]:
    """Return lower and upper bound; null means no bound."""
    lower, upper = interval
    return (0.0 if lower is None else lower), (math.inf if upper is None else upper)


def _check_interval(interval: Interval, name: str) -> None:
    lower, upper = bounds(interval)
    if lower >= upper:
        raise ValueError(f"{name}: the lower bound must be below the upper bound")


class Solenoid(Record):
    """A cylinder around the beam line with a uniform magnetic field along it."""

    field: float  # T
    radius: Positive  # mm
    half_length: Positive  # mm


class EfficiencyRegion(Record):
    """Tracking efficiency in a rectangle of |eta| and pT."""

    abs_eta: Interval
    pt: Interval
    efficiency: Fraction
    falls_over: Positive | None = None  # GeV; the efficiency falls exponentially from the lower pT on

    @model_validator(mode="after")
    def _intervals(self) -> Self:
        _check_interval(self.abs_eta, "abs_eta")
        _check_interval(self.pt, "pt")
        return self


class Tracking(Record):
    """Tracking efficiencies by kind of particle; the first region that contains a particle applies."""

    charged_hadron: list[EfficiencyRegion]
    electron: list[EfficiencyRegion]
    muon: list[EfficiencyRegion]


class CellBand(Record):
    """Rings of calorimeter cells, all with the same number of cells in phi."""

    phi_cells: Annotated[int, Field(gt=0, le=10_000)]
    edges: Annotated[list[Positive], Field(min_length=1)] | None = None
    to: Positive | None = None
    eta_cells: Annotated[int, Field(gt=0, le=10_000)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        uniform = self.to is not None and self.eta_cells is not None
        if uniform == (self.edges is not None) or (self.to is None) != (self.eta_cells is None):
            raise ValueError("give either edges, or to and eta_cells")
        return self

    def upper_edges(self, start: float) -> list[float]:
        """Return the upper |eta| edge of each ring of a band that starts at `start`."""
        if self.to is None or self.eta_cells is None:
            return list(self.edges or ())
        width = (self.to - start) / self.eta_cells
        return [start + width * (ring + 1) for ring in range(self.eta_cells)]


class ResolutionRegion(Record):
    """Energy resolution in a range of |eta|."""

    abs_eta: Interval
    factor: NotNegative = 1.0
    curvature: float = 0.0
    centre: float = 0.0
    constant: NotNegative = 0.0
    stochastic: NotNegative = 0.0
    noise: NotNegative = 0.0

    @model_validator(mode="after")
    def _interval(self) -> Self:
        _check_interval(self.abs_eta, "abs_eta")
        return self


class Calorimeter(Record):
    """Cells, response and thresholds of one calorimeter."""

    cells: Annotated[list[CellBand], Field(min_length=1)]
    energy_share: dict[int, Fraction]
    other_energy_share: Fraction
    resolution: list[ResolutionRegion]
    energy_min: NotNegative
    significance_min: NotNegative

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        edges = [0.0]
        for band in self.cells:
            edges += band.upper_edges(edges[-1])
        if any(lower >= upper for lower, upper in itertools.pairwise(edges)):
            raise ValueError("cells: eta edges must increase within and between bands")
        return self


class Card(Record):
    """The whole detector."""

    solenoid: Solenoid
    tracking: Tracking
    impact_parameter_table: str
    ecal: Calorimeter
    hcal: Calorimeter


@dataclass(frozen=True)
class ImpactParameterBin:
    """Resolutions (mm) in a rectangle of |eta| and pT."""

    abs_eta_min: float
    abs_eta_max: float
    pt_min: float
    pt_max: float
    sigma_d0: float
    sigma_dz: float


@dataclass(frozen=True)
class Detector:
    """A detector card with its table of impact-parameter resolutions."""

    card: Card
    impact_parameters: tuple[ImpactParameterBin, ...]

    @property
    def fingerprint(self) -> str:
        """A hash of everything that the detector's response depends on."""
        values = self.card.model_dump(exclude={"impact_parameter_table"})
        table = [list(vars(row).values()) for row in self.impact_parameters]
        return hashlib.sha256(json.dumps([values, table], sort_keys=True).encode()).hexdigest()


def load_detector(path: str | Path | None = None) -> Detector:
    """Read a card and its table (default: those of JetClass)."""
    path = DEFAULT_CARD if path is None else Path(path)
    card = load_record(path, Card)
    return Detector(card, _load_table(path.parent / card.impact_parameter_table))


def _load_table(path: Path) -> tuple[ImpactParameterBin, ...]:
    require_regular(path, error_type=ConfigError)
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            header, *rows = list(csv.reader(lines)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"cannot read the impact-parameter table {path}: {error}") from error
    if header != TABLE_COLUMNS:
        raise ConfigError(f"{path}: the first line must be {','.join(TABLE_COLUMNS)}")
    table = []
    for line, row in enumerate(rows, start=2):
        try:
            values = [float(text) if text else math.inf for text in row]
            table.append(ImpactParameterBin(*values))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path}:{line}: expected {len(TABLE_COLUMNS)} numbers") from error
        _check_bin(table[-1], f"{path}:{line}")
    return tuple(table)


def _check_bin(row: ImpactParameterBin, where: str) -> None:
    if not (0 <= row.abs_eta_min < row.abs_eta_max and 0 <= row.pt_min < row.pt_max):
        raise ConfigError(f"{where}: each lower bound must be below its upper bound")
    if not (0 <= row.sigma_d0 < math.inf and 0 <= row.sigma_dz < math.inf):
        raise ConfigError(f"{where}: resolutions must be finite and not negative")
