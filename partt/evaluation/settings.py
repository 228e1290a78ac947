"""Users' words -> a plan: bins, backgrounds, default observers."""

from collections.abc import Mapping, Sequence

import numpy as np

from partt.errors import ConfigError
from partt.evaluation.passing import Floats

DEFAULT_OBSERVERS = ("jet_pt", "jet_eta")
DEFAULT_MASS = "jet_sdmass"


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
    """Return bin edges, at least two finite ones that increase."""
    values = np.asarray(edges, dtype=np.float64)
    if not observer or len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ConfigError(
            f"bins of {observer!r}: should be an observer and edges that increase, like jet_pt=500,750,1000"
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
