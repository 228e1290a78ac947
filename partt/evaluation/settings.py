"""What to evaluate: discriminants, working points, bins of observers; given by users or by default."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from partt.errors import ConfigError
from partt.evaluation.bins import round_edges
from partt.evaluation.jets import ScoresByClass
from partt.evaluation.names import check_name
from partt.evaluation.passing import Floats
from partt.evaluation.presets import QuotedDiscriminant
from partt.evaluation.working_points import Request

DEFAULT_OBSERVERS = ("jet_pt", "jet_eta")
DEFAULT_MASS = "jet_sdmass"
MAX_BINS = 8  # of an observer, by default
MASS_BINS = 25
MAX_EDGES = 1000  # of an observer
LARGEST_EDGE = 1e30
MAX_OBSERVERS = 16  # with bins: each has a figure
MAX_EFFICIENCIES = 200_000  # of efficiencies.json: in bins of all observers together


@dataclass(frozen=True, eq=False)
class EvaluationSettings:
    """What to evaluate."""

    discriminants: tuple[QuotedDiscriminant, ...]
    requests: tuple[Request, ...] = ()  # none: the efficiencies of the results table
    bins: Mapping[str, Floats] | None = None  # observer -> edges
    mass: tuple[str, Floats] | None = None  # observer, edges

    def requests_for(self, discriminant: QuotedDiscriminant) -> tuple[Request, ...]:
        """Return the working points of a discriminant; figures show the first."""
        return self.requests or tuple(Request("eps_s", value) for value in discriminant.efficiencies)


def check_size(settings: EvaluationSettings) -> None:
    """Raise an error if so many efficiencies were asked for that they would take minutes to write."""
    bins = settings.bins or {}
    if len(bins) > MAX_OBSERVERS:
        raise ConfigError(f"--bins: {len(bins)} observers; at most {MAX_OBSERVERS} are possible")
    num_bins = math.prod(len(edges) - 1 for edges in bins.values())
    num_cuts = sum(
        len(settings.requests_for(one)) * (1 + len(one.backgrounds)) for one in settings.discriminants
    )
    if num_bins * num_cuts > MAX_EFFICIENCIES:
        raise ConfigError(
            f"{num_bins:,} bins of {', '.join(bins) or 'nothing'} together, for {num_cuts:,} working points "
            f"and classes, are {num_bins * num_cuts:,} efficiencies; at most {MAX_EFFICIENCIES:,} are "
            "possible: use fewer --bins, --working-points or --signal"
        )


def parse_bins(texts: Sequence[str]) -> dict[str, Floats]:
    """Read "jet_pt=500,600,800,1000"."""
    bins = {}
    for text in texts:
        name, _, values = text.partition("=")
        try:
            edges = [float(value) for value in values.split(",")]
        except ValueError:
            edges = []
        bins[name] = check_edges(name, edges)
    return bins


def check_edges(observer: str, edges: Sequence[float]) -> Floats:
    """Return bin edges: at least two, finite and increasing."""
    values = np.asarray(edges, dtype=np.float64)
    check_name("an observer", observer)
    if len(values) > MAX_EDGES:
        raise ConfigError(f"bins of {observer!r}: {len(values):,} edges; at most {MAX_EDGES:,} are possible")
    if len(values) < 2 or not (np.abs(values) < LARGEST_EDGE).all() or (np.diff(values) <= 0).any():
        raise ConfigError(
            f"bins of {observer!r}: should be an observer and increasing edges, like jet_pt=500,750,1000"
        )
    return values


def parse_backgrounds(texts: Sequence[str]) -> Mapping[str, float]:
    """Read "QCD" or "QCD:0.9,Zqq:0.1"."""
    backgrounds: dict[str, float] = {}
    for part in (part for text in texts for part in text.split(",")):
        name, colon, value = part.partition(":")
        try:
            fraction = float(value) if colon else 1.0
        except ValueError:
            fraction = 0.0
        if not name or not 0 < fraction < np.inf or name in backgrounds:
            raise ConfigError(f"background {part!r}: should be like QCD or QCD:0.9,Zqq:0.1, each class once")
        backgrounds[name] = fraction
    return backgrounds


def default_edges(scores: ScoresByClass, observer: str, num_bins: int = MAX_BINS) -> Floats | None:
    """Return round edges that hold nearly all jets; None if the observer is constant or never finite."""
    some = [jets.observers[observer][:: max(1, len(jets) // 20_000)] for jets in scores.jets]
    return round_edges(np.concatenate(some), num_bins)


def default_bins(scores: ScoresByClass) -> dict[str, Floats]:
    """Return bins of the usual observers, as far as the jets have them."""
    known = scores.jets[0].observers
    edges = {name: default_edges(scores, name) for name in DEFAULT_OBSERVERS if name in known}
    return {name: values for name, values in edges.items() if values is not None}


def mass_bins(scores: ScoresByClass, observer: str | None) -> tuple[str, Floats] | None:
    """Return the observer for mass sculpting, by default the usual one, with its bins; None without any."""
    name = observer or DEFAULT_MASS
    edges = default_edges(scores, name, MASS_BINS) if name in scores.jets[0].observers else None
    return None if edges is None else (name, edges)
