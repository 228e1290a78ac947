"""`partt evaluate` as a function: scores of one or several models -> numbers, and a report if asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from partt.config import did_you_mean
from partt.errors import ConfigError
from partt.evaluation.jets import ScoresByClass
from partt.evaluation.published import published_rows
from partt.evaluation.responses import target_title
from partt.evaluation.results import Evaluation
from partt.evaluation.results_table import make_table
from partt.evaluation.score_files import open_score_files, read_scores
from partt.evaluation.settings import (
    DEFAULT_MASS,
    DEFAULT_OBSERVERS,
    MULTIPLICITY,
    EvaluationSettings,
    baselines_of,
    check_edges,
    check_size,
    default_bins,
    mass_bins,
    plan_regressions,
    settings_for,
    without_baselines,
)
from partt.evaluation.summary import Summary, num_steps, summarise
from partt.evaluation.working_points import parse_requests
from partt.jobs.metrics_file import METRICS_FILE, read_metrics
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.progress import Progress
from partt.model.tasks import Task
from partt.pages.explanation_link import EXPLANATION_FOLDER
from partt.pages.names import check_name, fault_of, shorten
from partt.scores.columns import ScoreFile
from partt.scores.passing import Floats
from partt.scores.presets import QuotedDiscriminant, choose_discriminants

Location = str | Path
Source = Location | ScoresByClass | Sequence[Location] | Sequence[ScoresByClass]


def evaluate(
    scores: Source,
    *,
    tree: str | None = None,
    out: Location | None = None,
    name: str | None = None,
    preset: str | None = None,
    signals: Sequence[str] = (),
    backgrounds: Mapping[str, float] | None = None,
    weights: str | None = None,
    bins: Mapping[str, Sequence[float]] | None = None,
    mass: str | None = None,
    baselines: Mapping[str, Sequence[str]] | None = None,
    working_points: Sequence[str] = (),
    compare: Mapping[str, Source] | None = None,
    published: bool = False,
    run_folder: Location | None = None,
    label: str = "",
    command: str = "",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate the predictions of a model, and of others to compare with; write a report to the folder `out`.

    `scores` are prediction files (names, globs, URLs), or `scores_from_arrays(...)`; several files with the
    same jets are seeds of one model. `tree`: that of files not given as FILE.root:TREE. `label` names an
    experiment above the figures. Files in `out` that are not of an earlier report are replaced only with
    `overwrite`. See docs/reference/evaluation.md for the rest.
    """
    sources = _named(name, scores, compare or {})
    if label:
        from partt.evaluation.figures.experiment_label import check_label  # noqa: PLC0415 - matplotlib

        check_label(label)
    if out is not None:
        from partt.evaluation.report import (  # noqa: PLC0415 - matplotlib, only for reports
            refuse_foreign_files,
            write_report,
        )

        refuse_foreign_files(Path(out), overwrite=overwrite)  # before long computations
    requests = parse_requests(working_points)
    wanted = {observer: check_edges(observer, list(edges)) for observer, edges in (bins or {}).items()}
    epochs = [] if run_folder is None else read_metrics(Path(run_folder) / METRICS_FILE, "epoch")
    opened = {model: _open(source, tree) for model, source in sources.items()}
    further = baselines or {}
    _require_regressions(further, [task for seeds in opened.values() for task in _regressions(seeds[0])])
    tracker = _Tracker(opened.values(), progress or notebook_progress("evaluating", "jets"))

    settings: EvaluationSettings | None = None
    models: dict[str, tuple[Summary, ...]] = {}
    for model, seeds in opened.items():
        summaries = []
        for number, seed in enumerate(seeds):
            # the first seed of each model is evaluated in bins: those of the first model
            is_main = settings is None
            asked = [*wanted, *([mass] if mass else [])] if is_main else []
            usual = _usual_observers(seed, wanted, mass) if number == 0 else []
            known = settings.responses if settings else {}
            compared = [
                name
                for task in (_regressions(seed) if number == 0 else ())
                if target_title(task) not in known
                for name in baselines_of(task, further)
            ]
            loaded = _load(seed, [*asked, *usual, *compared], weights, tracker)
            _require_observers(loaded, [*asked, *compared])
            if settings is None:
                chosen = _discriminants(loaded.class_names, preset, signals, backgrounds)
                all_bins = {**default_bins(loaded), **wanted}
                settings = EvaluationSettings(chosen, requests, all_bins, mass_bins(loaded, mass))
                check_size(settings)
            applied = (
                settings_for(loaded, settings) if number == 0 else replace(settings, bins=None, mass=None)
            )
            if loaded.regressions and number == 0:
                applied = replace(
                    applied, responses=plan_regressions(loaded, wanted, further, settings.responses)
                )
                settings = replace(settings, responses=without_baselines(applied.responses))
            summaries.append(summarise(loaded, applied, tracker.step(loaded, applied)))
            del loaded
        models[model or _default_name(summaries[0])] = tuple(summaries)
    if settings is None or len(models) < len(opened):
        raise ConfigError(f"two models are called {next(iter(models))!r}; give the first another --name")
    table = make_table(settings.discriminants, models)
    if published:
        table = replace(table, rows=(*table.rows, *published_rows(table)))
    evaluation = Evaluation(models, settings, table, label)
    if out is not None:
        write_report(
            evaluation,
            Path(out),
            epochs=epochs,
            weights=weights,
            explanation=None if run_folder is None else Path(run_folder) / EXPLANATION_FOLDER,
            command=command,
            overwrite=overwrite,
        )
    return evaluation


_Seed = tuple[ScoreFile, ...] | ScoresByClass


def _named(name: str | None, scores: Source, compare: Mapping[str, Source]) -> dict[str, Source]:
    """Return the scores of all models by name; the first has none yet if it was not given."""
    if name in compare:
        raise ConfigError(f"two models are called {name!r}; give the first another --name")
    for model in [*([name] if name else []), *compare]:
        check_name("a model", model)
    return {name or "": scores, **compare}


def _open(source: Source, tree: str | None) -> Sequence[_Seed]:
    if isinstance(source, ScoresByClass):
        return [source]
    if isinstance(source, str | Path):
        return open_score_files([str(source)], tree)
    if not source:
        raise ConfigError("no scores to evaluate: name some prediction files")
    in_memory = [seed for seed in source if isinstance(seed, ScoresByClass)]
    return in_memory or open_score_files([str(location) for location in source], tree)


def _load(seed: _Seed, observers: Sequence[str], weights: str | None, tracker: "_Tracker") -> ScoresByClass:
    if not isinstance(seed, ScoresByClass):
        return read_scores(seed, list(dict.fromkeys(observers)), weights, tracker.reading)
    if weights is not None:
        raise ConfigError("give weights of arrays to scores_from_arrays(..., weights=...)")
    return seed


def _regressions(seed: _Seed) -> tuple[Task, ...]:
    return seed.regressions if isinstance(seed, ScoresByClass) else seed[0].regressions


def _usual_observers(seed: _Seed, bins: Mapping[str, Floats], mass: str | None) -> list[str]:
    """Return the observers to read, if the files have them, for classes and for responses."""
    names = [*DEFAULT_OBSERVERS, mass or DEFAULT_MASS, *bins]
    if _regressions(seed):
        names.append(MULTIPLICITY)
    if isinstance(seed, ScoresByClass):
        return []  # all are in memory
    return [name for name in names if all(name in file.observers for file in seed)]


def _discriminants(
    class_names: Sequence[str],
    preset: str | None,
    signals: Sequence[str],
    backgrounds: Mapping[str, float] | None,
) -> tuple[QuotedDiscriminant, ...]:
    if class_names:
        return choose_discriminants(class_names, preset, signals, backgrounds)
    if preset or signals or backgrounds:
        raise ConfigError("--preset, --signal and --background need scores of classes; there are none")
    return ()


def _require_regressions(baselines: Mapping[str, Sequence[str]], tasks: Sequence[Task]) -> None:
    known = dict.fromkeys(name for task in tasks for name in (task.name, task.target))
    for name in baselines:
        if name not in known:
            raise ConfigError(
                f"--baseline: no regression {shorten(name)!r}{did_you_mean(name, list(known))}; regressions "
                f"and targets: {', '.join(known) or 'none'}"
            )


def _require_observers(scores: ScoresByClass, names: Sequence[str]) -> None:
    known = scores.jets[0].observers
    for name in names:
        if name not in known:
            raise ConfigError(f"no observer {name!r} in the scores; observers: {', '.join(known) or 'none'}")


def _default_name(summary: Summary) -> str:
    """Return what the tagger is called, if the files say so, else the name of the first file."""
    stem = Path(summary.files[0]).stem if summary.files else "model"
    tagger = str(summary.origin.get("tagger", ""))
    if tagger and not fault_of(tagger):
        return tagger
    return stem.encode("utf-8", "replace").decode()  # bytes of the name that are not UTF-8 become ?


class _Tracker:
    """Progress in jets: reading is one half, evaluating the other."""

    def __init__(self, sources: Iterable[Sequence[_Seed]], progress: Progress) -> None:
        self._total = sum(_num_rows(seed) for seeds in sources for seed in seeds)
        self._progress = progress
        self._halves = 0

    def reading(self, done: int, total: int) -> None:
        self._progress((self._halves + done) // 2, self._total)
        if done == total:
            self._halves += total

    def step(self, scores: ScoresByClass, settings: EvaluationSettings) -> Callable[[], None]:
        jets_per_step = scores.num_rows // num_steps(scores, settings)

        def step() -> None:
            self._halves += jets_per_step
            self._progress(self._halves // 2, self._total)

        return step


def _num_rows(seed: _Seed) -> int:
    return seed.num_rows if isinstance(seed, ScoresByClass) else sum(file.info.num_entries for file in seed)
