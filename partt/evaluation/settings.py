"""What to evaluate: discriminants, working points, bins of observers; given by users or by default."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from partt.errors import ConfigError
from partt.evaluation.bins import round_edges
from partt.evaluation.jets import ScoresByClass
from partt.evaluation.responses import ResponsePlan, plan_responses, target_title
from partt.evaluation.working_points import Request
from partt.model.tasks import Task
from partt.pages.names import check_name, shorten
from partt.scores.passing import Floats
from partt.scores.presets import QuotedDiscriminant

DEFAULT_OBSERVERS = ("jet_pt", "jet_eta")
MULTIPLICITY = "jet_nparticles"  # responses are shown in bins of it, too
DEFAULT_MASS = "jet_sdmass"
MAX_BINS = 8  # of an observer, by default
MASS_BINS = 25
MAX_EDGES = 1000  # of an observer
LARGEST_EDGE = 1e30
MAX_OBSERVERS = 16  # with bins: each has a figure
MAX_EFFICIENCIES = 200_000  # of efficiencies.json: in bins of all observers together
MAX_RESPONSES = 20_000  # of a prediction: in bins of observers, by class


@dataclass(frozen=True, eq=False)
class EvaluationSettings:
    """What to evaluate."""

    discriminants: tuple[QuotedDiscriminant, ...]
    requests: tuple[Request, ...] = ()  # none: the efficiencies of the results table
    bins: Mapping[str, Floats] | None = None  # observer -> edges
    mass: tuple[str, Floats] | None = None  # observer, edges
    responses: Mapping[str, ResponsePlan] = field(default_factory=dict)  # by title of the target

    def requests_for(self, discriminant: QuotedDiscriminant) -> tuple[Request, ...]:
        """Return the working points of a discriminant; figures show the first."""
        return self.requests or tuple(Request("eps_s", value) for value in discriminant.efficiencies)


def settings_for(scores: ScoresByClass, settings: EvaluationSettings) -> EvaluationSettings:
    """Return the settings without the observers that these scores do not have."""
    known = scores.jets[0].observers
    bins = {name: edges for name, edges in (settings.bins or {}).items() if name in known}
    mass = settings.mass if settings.mass and settings.mass[0] in known else None
    return replace(settings, bins=bins, mass=mass)


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


def check_responses(scores: ScoresByClass, bins: Mapping[str, Floats]) -> None:
    """Raise an error if responses in so many bins were asked for that they would take minutes."""
    num_groups = 1 + len(scores.class_names)
    num_bins = sum(len(edges) - 1 for edges in bins.values())
    if len(bins) > MAX_OBSERVERS:
        raise ConfigError(f"--bins: {len(bins)} observers; at most {MAX_OBSERVERS} are possible")
    if num_bins * num_groups > MAX_RESPONSES:
        raise ConfigError(
            f"{num_bins:,} bins for each of {num_groups - 1:,} classes are {num_bins * num_groups:,} "
            f"responses; at most {MAX_RESPONSES:,} are possible: use fewer --bins"
        )


def parse_baselines(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read "mass_factor=jet_sdmass"; a repeated name adds observers."""
    baselines: dict[str, list[str]] = {}
    for text in texts:
        name, _, observer = text.partition("=")
        if not (name and observer):
            raise ConfigError(
                f"--baseline {shorten(text)}: should be REGRESSION=OBSERVER, like mass_factor=jet_sdmass"
            )
        baselines.setdefault(name, []).append(observer)
    return baselines


def parse_bins(texts: Sequence[str]) -> dict[str, Floats]:
    """Read "jet_pt=500,600,800,1000"."""
    bins = {}
    for text in texts:
        name, _, values = text.partition("=")
        try:
            edges = [float(value) for value in values.split(",")]
        except ValueError:
            edges = []
        if name in bins:
            raise ConfigError(f"bins {shorten(text)}: {name} has others already; give it once")
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


def default_bins(scores: ScoresByClass, observers: Sequence[str] = DEFAULT_OBSERVERS) -> dict[str, Floats]:
    """Return bins of the usual observers, as far as the jets have them."""
    known = scores.jets[0].observers
    edges = {name: default_edges(scores, name) for name in observers if name in known}
    return {name: values for name, values in edges.items() if values is not None}


def plan_regressions(
    scores: ScoresByClass,
    bins: Mapping[str, Floats],
    baselines: Mapping[str, Sequence[str]],
    known: Mapping[str, ResponsePlan],
) -> dict[str, ResponsePlan]:
    """Return how to show the targets of all regressions: as known from other models, or by these jets."""
    all_bins = {**default_bins(scores, (*DEFAULT_OBSERVERS, MULTIPLICITY)), **bins}
    check_responses(scores, all_bins)
    plans = dict(known)
    for task in scores.regressions:
        if target_title(task) not in plans:
            usual = [task.factor_of] if task.factor_of else []
            others = list(dict.fromkeys([*usual, *baselines_of(task, baselines)]))
            plan = plan_responses(scores, task, others, all_bins)
            if plan is not None:
                plans[target_title(task)] = plan
    return plans


def baselines_of(task: Task, baselines: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the observers that were asked for as baselines of a regression, by its name or its target."""
    return [name for key in dict.fromkeys([task.name, task.target]) for name in baselines.get(key, ())]


def without_baselines(plans: Mapping[str, ResponsePlan]) -> dict[str, ResponsePlan]:
    """Return plans for further models: baselines are the same for all."""
    return {title: replace(plan, baselines=()) for title, plan in plans.items()}


def mass_bins(scores: ScoresByClass, observer: str | None) -> tuple[str, Floats] | None:
    """Return the observer for mass sculpting, by default the usual one, with its bins; None without any."""
    name = observer or DEFAULT_MASS
    edges = default_edges(scores, name, MASS_BINS) if name in scores.jets[0].observers else None
    return None if edges is None else (name, edges)
