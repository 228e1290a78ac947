"""The report: tables, figures, JSON files, and a self-contained HTML page with all of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partt.atomic_files import staged_files, write_text
from partt.evaluation.corrections import to_correctionlib
from partt.evaluation.figures.calibration import draw_calibration
from partt.evaluation.figures.confusion import draw_confusion
from partt.evaluation.figures.discriminant_spectra import draw_discriminants
from partt.evaluation.figures.experiment_label import labelled
from partt.evaluation.figures.mass import draw_mass
from partt.evaluation.figures.observer_dependence import draw_dependence
from partt.evaluation.figures.predictors import file_key
from partt.evaluation.figures.regression_figures import draw_targets
from partt.evaluation.figures.roc_curves import draw_roc
from partt.evaluation.figures.score_distributions import draw_scores
from partt.evaluation.figures.training_curves import draw_training
from partt.evaluation.json_files import metrics_json, working_points_json
from partt.evaluation.regression_formats import (
    predictor_title,
    regression_legend,
    regressions_csv,
    regressions_latex,
    regressions_markdown,
    shown_rows,
)
from partt.evaluation.responses import ALL_JETS
from partt.evaluation.results import Evaluation
from partt.evaluation.sculpting import MIN_PASSING
from partt.evaluation.shown import MAX_SHOWN, shown_curves, shown_discriminants
from partt.evaluation.summary import ClassificationSummary, DiscriminantSummary, Summary
from partt.evaluation.table_formats import legend, row_title, to_csv, to_latex, to_markdown
from partt.jobs.output_folder import writing_to
from partt.pages.drawing import Drawing
from partt.pages.explanation_link import explanation_link
from partt.pages.number_text import cell_text, efficiency_text
from partt.pages.page_folder import PageFolder, about_page, files_of, render_page, write_any_text
from partt.pages.style import house_style, write_figure

VERSIONS_OF = ("numpy", "scipy", "hist", "matplotlib", "mplhep")
MAX_LISTED = 20  # score files
ROWS_AT_ONCE = 20  # of a long table; the page turns to the others
MAX_CONFUSIONS = 200
METRICS = "metrics.json"
FILES = (
    *(METRICS, "table.md", "table.tex", "metrics.csv"),
    *("regressions.md", "regressions.tex", "regressions.csv"),
    *("working_points.json", "efficiencies.json", "report.html"),
)
FOLDER = PageFolder("partt evaluate", METRICS)
STAGE = "report"  # the temporary folder


def write_report(
    evaluation: Evaluation,
    folder: Path,
    *,
    epochs: Sequence[Mapping[str, Any]] = (),
    weights: str | None = None,
    explanation: Path | None = None,
    command: str = "",
    overwrite: bool = False,
) -> None:
    """Write report.html, the figures, and the tables and numbers in all formats; all files, or none.

    `explanation` is the folder where `partt explain` may have explained the tagger: the page then has a link.
    metrics.json lists the files with their SHA-256: files of the folder that it does not list, or that were
    changed since, are replaced only with `overwrite`.
    """
    model = next(iter(evaluation.models))
    link = explanation and explanation_link(explanation, folder, evaluation.main.origin.get("tagger_sha256"))
    about = {**about_page(command, VERSIONS_OF), "weights": weights, "explanation": link}
    with writing_to(folder, [folder / STAGE]), staged_files(folder, STAGE, first=METRICS) as stage:
        with house_style():
            figures = [
                (drawing, write_figure(drawing.figure, stage / "figures", drawing.name))
                for plain_drawing in draw_figures(evaluation, epochs)
                for drawing in [labelled(plain_drawing, evaluation.label)]
            ]
        if evaluation.table.rows:
            write_any_text(stage / "table.md", to_markdown(evaluation.table))
            write_any_text(stage / "table.tex", to_latex(evaluation.table))
            write_any_text(stage / "metrics.csv", to_csv(evaluation.table))
        if evaluation.targets:
            write_any_text(stage / "regressions.md", regressions_markdown(evaluation.regression_tables))
            write_any_text(stage / "regressions.tex", regressions_latex(evaluation.regression_tables))
            write_any_text(stage / "regressions.csv", regressions_csv(evaluation.regression_tables))
        if evaluation.main.discriminants:
            write_text(stage / "working_points.json", working_points_json(evaluation.main, model))
            write_text(stage / "efficiencies.json", to_correctionlib(evaluation.main))
        write_any_text(stage / "report.html", render(evaluation, figures, about))
        made = files_of(stage)
        write_text(stage / METRICS, metrics_json(evaluation, {**about, "files": made}))
        FOLDER.refuse_foreign_files(folder, [METRICS, *made], overwrite=overwrite)


def refuse_foreign_files(folder: Path, *, overwrite: bool) -> None:
    """Raise an error if a report would replace a file that is not of an earlier report."""
    FOLDER.refuse_foreign_files(folder, FILES, overwrite=overwrite)


def draw_figures(evaluation: Evaluation, epochs: Sequence[Mapping[str, Any]]) -> Iterator[Drawing]:
    """Draw every figure that there are numbers for."""
    models = {name: seeds[0] for name, seeds in list(evaluation.models.items())[:MAX_SHOWN]}
    if curves := shown_curves(evaluation.models):
        yield draw_roc(curves)
    for number, (model, summary) in enumerate(models.items()):
        for drawing in draw_classification(summary) if summary.classification else ():
            key = f"_{file_key(model, 'model', number)}" if number else ""
            yield replace(drawing, name=f"{drawing.name}{key}", model=model if len(models) > 1 else "")
    yield from draw_targets(evaluation.targets)
    if epochs:
        yield draw_training(epochs)


def draw_classification(summary: Summary) -> Iterator[Drawing]:
    """Draw the figures of one model's classes, but the ROC curves."""
    if summary.classification is None:
        return
    shown = shown_discriminants(summary.classification)
    if shown:
        yield draw_discriminants(shown)
    yield draw_scores(summary.classification)
    yield draw_confusion(summary.classification)
    yield draw_calibration(summary.classification)
    observers = next(iter(shown.values())).working_points[0].signal_by if shown else ()
    for number, observer in enumerate(observers):
        yield draw_dependence(shown, observer, number)
    mass = draw_mass(shown)
    if mass is not None:
        yield mass


def render(evaluation: Evaluation, figures: Sequence[tuple[Drawing, str]], about: Mapping[str, Any]) -> str:
    """Return the HTML page with figures, each with its image as a data URI; all names are escaped."""
    main = evaluation.main
    model, seeds = next(iter(evaluation.models.items()))
    values = {
        "model": model,
        "num_seeds": len(seeds),
        "main": main,
        "about": about,
        "models": [_about_model(name, found[0]) for name, found in evaluation.models.items()],
        "notes": _notes(evaluation),
        "table": evaluation.table,
        "rows_at_once": ROWS_AT_ONCE,
        "regression_tables": evaluation.regression_tables,
        "shown_rows": shown_rows,
        "predictor_title": predictor_title,
        "regression_legend": regression_legend,
        "all_jets": ALL_JETS,
        "row_title": row_title,
        "cell_text": cell_text,
        "legend": legend(evaluation.table),
        "figures": _by_title(figures),
    }
    return render_page("partt.evaluation", "report.html.j2", values)


def _about_model(name: str, summary: Summary) -> dict[str, Any]:
    """Return what the page shows of one model."""
    return {
        "name": name,
        "summary": summary,
        "origin": _scalars(summary.origin),
        "files": summary.files[:MAX_LISTED],
        "num_more": max(0, len(summary.files) - MAX_LISTED),
        "working_points": [row for one in summary.discriminants.values() for row in _working_point_rows(one)],
        "confusions": _confusions(summary.classification) if summary.classification else [],
    }


def _by_title(figures: Sequence[tuple[Drawing, str]]) -> list[tuple[Drawing, str]]:
    """Return the figures with those of one kind, of different models, side by side."""
    titles = list(dict.fromkeys(drawing.title for drawing, _ in figures))
    return sorted(figures, key=lambda found: titles.index(found[0].title))


def _confusions(summary: ClassificationSummary) -> list[tuple[str, str, float]]:
    """Return the most frequent mistakes (true class, predicted class, fraction), if the figure lacks some."""
    if len(summary.class_names) <= MAX_SHOWN:
        return []
    fractions = np.nan_to_num(summary.predictions.normalised)
    np.fill_diagonal(fractions, 0.0)
    largest = np.argsort(-fractions, axis=None, kind="stable")[:MAX_CONFUSIONS]
    pairs = [divmod(int(index), len(fractions)) for index in largest]
    names = summary.class_names
    return [(names[i], names[j], float(fractions[i, j])) for i, j in pairs if fractions[i, j] > 0]


def _scalars(origin: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in origin.items() if isinstance(value, str | int | float)}


def _notes(evaluation: Evaluation) -> list[str]:
    notes = [f"{name}: {note}" for name, seeds in evaluation.models.items() for note in seeds[0].notes]
    for name, seeds in evaluation.models.items():
        if len(seeds) > 1:
            notes.append(f"{name}: figures and working points are of the first of {len(seeds)} seeds")
        notes += [
            f"{name}: {count:,} of {seeds[0].num_rows:,} rows left out: {reason}"
            for reason, count in seeds[0].left_out.items()
        ]
    if len(evaluation.main.class_names) > MAX_SHOWN:
        notes.append(
            f"figures show the {MAX_SHOWN} classes and discriminants with the most jets, the tables all of "
            "them; --signal chooses others"
        )
    if len(evaluation.models) > MAX_SHOWN:
        notes.append(f"figures show the first {MAX_SHOWN} models, the tables all of them")
    if evaluation.main.discriminants and not any(
        one.sculpting for one in evaluation.main.discriminants.values()
    ):
        notes.append(
            "no figure of mass sculpting: no mass observer in the scores, or fewer than "
            f"{MIN_PASSING} background jets pass"
        )
    return notes


def _working_point_rows(one: DiscriminantSummary) -> list[dict[str, Any]]:
    rows = []
    for found in one.working_points:
        point = found.point
        signal, background = (
            efficiency_text(*(float(values[0]) for values in interval))
            for interval in (point.signal, point.background)
        )
        several = {
            name: f"{binned.overall:.3g}"
            for name, binned in found.by_class.items()
            if name != one.discriminant.signal
        }
        rows.append(
            {
                "discriminant": one.discriminant.title,
                "name": point.request.name,
                "threshold": point.threshold,
                "signal": signal,
                "background": background,
                "signal_value": float(point.signal.value[0]),
                "background_value": float(point.background.value[0]),
                "num_signal": point.num_signal_passing,
                "num_background": point.num_background_passing,
                "several": several if len(several) > 1 else {},
            }
        )
    return rows
