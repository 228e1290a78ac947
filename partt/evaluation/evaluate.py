"""`partt evaluate` as a function: scores of one or several models -> numbers, and a report if asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from partt.errors import ConfigError
from partt.evaluation.discriminants import choose_discriminants
from partt.evaluation.inputs import ScoreFile, open_score_files, read_scores
from partt.evaluation.jets import Scores
from partt.evaluation.passing import Floats
from partt.evaluation.plan import DEFAULT_MASS, DEFAULT_OBSERVERS, check_edges
from partt.evaluation.published import published_rows
from partt.evaluation.results_table import ResultsTable, make_table
from partt.evaluation.summary import Plan, Summary, default_edges, mass_edges, num_steps, summarise
from partt.evaluation.training_history import read_epochs
from partt.evaluation.working_points import parse_requests

Location = str | Path
Source = Location | Scores | Sequence[Location] | Sequence[Scores]
Progress = Callable[[int, int], None]  # jets read and evaluated, jets in all


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All numbers of all models; the first model is the one that the report is about."""

    models: Mapping[str, tuple[Summary, ...]]  # name -> seeds
    plan: Plan
    table: ResultsTable

    @property
    def main(self) -> Summary:
        """The first model, its first seed."""
        return next(iter(self.models.values()))[0]


def evaluate(
    scores: Source,
    *,
    out: Location | None = None,
    name: str | None = None,
    preset: str | None = None,
    signals: Sequence[str] = (),
    backgrounds: Mapping[str, float] | None = None,
    weights: str | None = None,
    bins: Mapping[str, Sequence[float]] | None = None,
    mass: str | None = None,
    working_points: Sequence[str] = (),
    compare: Mapping[str, Source] | None = None,
    published: bool = False,
    run_folder: Location | None = None,
    command: str = "",
    progress: Progress = lambda _done, _total: None,
) -> Evaluation:
    """Evaluate the scores of a model, and of others to compare it with; write a report to the folder `out`.

    `scores` are prediction files (names, globs, URLs), or `scores_from_arrays(...)`; several files with the
    same jets are seeds of one model. See docs/reference/evaluation.md for the rest.
    """
    sources = {name or "": scores, **(compare or {})}
    if len(sources) < 1 + len(compare or {}):
        raise ConfigError(f"two models are called {name!r}; give the first another --name")
    requests = parse_requests(working_points)
    wanted = {observer: check_edges(observer, list(edges)) for observer, edges in (bins or {}).items()}
    epochs = read_epochs(run_folder) if run_folder is not None else ()
    opened = {model: _open(source) for model, source in sources.items()}
    tracker = _Tracker(opened.values(), progress)

    plan: Plan | None = None
    models: dict[str, tuple[Summary, ...]] = {}
    for model, seeds in opened.items():
        summaries = []
        for seed in seeds:
            # only the first seed of the first model is looked at in bins
            observers = _observers(seed, wanted, mass) if plan is None else ()
            loaded = _load(seed, observers, weights, tracker)
            if plan is None:
                chosen = choose_discriminants(loaded.class_names, preset, signals, backgrounds)
                bins_and_mass = _bins_and_mass(loaded, wanted, mass)
                plan = Plan(chosen, requests, *bins_and_mass)
                summaries.append(summarise(loaded, plan, tracker.step(loaded, plan)))
                plan = replace(plan, bins=None, mass=None)
            else:
                summaries.append(summarise(loaded, plan, tracker.step(loaded, plan)))
            del loaded
        models[model or _default_name(summaries[0])] = tuple(summaries)
    if plan is None or len(models) < len(opened):
        raise ConfigError(f"two models are called {next(iter(models))!r}; give the first another --name")
    table = make_table(plan.discriminants, models)
    if published:
        table = replace(table, rows=(*table.rows, *published_rows(table)))
    evaluation = Evaluation(models, plan, table)
    if out is not None:
        from partt.evaluation.report import write_report  # noqa: PLC0415 - matplotlib, only for reports

        write_report(evaluation, Path(out), epochs=epochs, weights=weights, command=command)
    return evaluation


_Seed = tuple[ScoreFile, ...] | Scores


def _open(source: Source) -> Sequence[_Seed]:
    if isinstance(source, Scores):
        return [source]
    if isinstance(source, str | Path):
        return open_score_files([str(source)])
    if not source:
        raise ConfigError("no scores to evaluate: name some prediction files")
    in_memory = [seed for seed in source if isinstance(seed, Scores)]
    return in_memory or open_score_files([str(location) for location in source])


def _load(seed: _Seed, observers: Sequence[str], weights: str | None, tracker: "_Tracker") -> Scores:
    if not isinstance(seed, Scores):
        return read_scores(seed, observers, weights, tracker.reading)
    if weights is not None:
        raise ConfigError("weights of arrays belong into scores_from_arrays(..., weights=...)")
    return seed


def _observers(seed: _Seed, bins: Mapping[str, Floats], mass: str | None) -> tuple[str, ...]:
    """Return the observers to read: those asked for, and usual ones if the files have them."""
    usual = [] if isinstance(seed, Scores) else [
        name
        for name in (*DEFAULT_OBSERVERS, DEFAULT_MASS)
        if all(name in file.observers for file in seed)
    ]  # fmt: skip
    return tuple(dict.fromkeys([*bins, *([mass] if mass else []), *usual]))


def _bins_and_mass(
    scores: Scores, bins: Mapping[str, Floats], mass: str | None
) -> tuple[Mapping[str, Floats], tuple[str, Floats] | None]:
    """Return the bins of all observers, and those of the mass, with round edges where none are asked for."""
    known = scores.jets[0].observers
    for name in (*bins, *([mass] if mass else [])):
        if name not in known:
            raise ConfigError(f"no observer {name!r} in the scores; observers: {', '.join(known) or 'none'}")
    usual = {name: default_edges(scores, name) for name in DEFAULT_OBSERVERS if name in known}
    all_bins = {**{name: edges for name, edges in usual.items() if edges is not None}, **bins}
    spectrum = mass or (DEFAULT_MASS if DEFAULT_MASS in known else None)
    edges = mass_edges(scores, spectrum) if spectrum else None
    return all_bins, (spectrum, edges) if spectrum and edges is not None else None


def _default_name(summary: Summary) -> str:
    return Path(summary.files[0]).stem if summary.files else "model"


class _Tracker:
    """Counts jets: one that is read is half done, the other half is its evaluation."""

    def __init__(self, sources: Iterable[Sequence[_Seed]], progress: Progress) -> None:
        self._total = sum(_num_rows(seed) for seeds in sources for seed in seeds)
        self._progress = progress
        self._halves = 0

    def reading(self, done: int, total: int) -> None:
        self._progress((self._halves + done) // 2, self._total)
        if done == total:
            self._halves += total

    def step(self, scores: Scores, plan: Plan) -> Callable[[], None]:
        jets_per_step = scores.num_rows // num_steps(plan)

        def step() -> None:
            self._halves += jets_per_step
            self._progress(self._halves // 2, self._total)

        return step


def _num_rows(seed: _Seed) -> int:
    return seed.num_rows if isinstance(seed, Scores) else sum(file.info.num_entries for file in seed)
