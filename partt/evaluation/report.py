"""The report: tables, figures, JSON files, and a self-contained HTML page with all of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from partt.atomic_files import staged_files, write_text
from partt.evaluation.corrections import to_correctionlib
from partt.evaluation.figures.calibration import draw_calibration
from partt.evaluation.figures.confusion import draw_confusion
from partt.evaluation.figures.mass import draw_mass
from partt.evaluation.figures.observer_dependence import draw_dependence
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
from partt.evaluation.summary import DiscriminantSummary
from partt.evaluation.table_formats import LEGEND, to_csv, to_latex, to_markdown
from partt.jobs.output_folder import writing_to
from partt.pages.drawing import Drawing
from partt.pages.number_text import cell_text, efficiency_text
from partt.pages.page_folder import PageFolder, about_page, files_of, render_page, write_any_text
from partt.pages.style import MAX_DRAWN, house_style, write_figure

VERSIONS_OF = ("numpy", "scipy", "hist", "matplotlib", "mplhep")
MAX_LISTED = 20  # score files
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
    command: str = "",
    overwrite: bool = False,
) -> None:
    """Write report.html, the figures, and the tables and numbers in all formats; all files, or none.

    metrics.json lists the files with their SHA-256: files of the folder that it does not list, or that were
    changed since, are replaced only with `overwrite`.
    """
    model = next(iter(evaluation.models))
    about = {**about_page(command, VERSIONS_OF), "weights": weights}
    with writing_to(folder, [folder / STAGE]), staged_files(folder, STAGE, first=METRICS) as stage:
        with house_style():
            figures = [
                (drawing, write_figure(drawing.figure, stage / "figures", drawing.name))
                for drawing in draw_figures(evaluation, epochs)
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
    main = evaluation.main
    if main.discriminants:
        drawn = set(list(main.discriminants)[:MAX_DRAWN])
        curves = {
            model: {name: one for name, one in seeds[0].discriminants.items() if name in drawn}
            for model, seeds in list(evaluation.models.items())[:MAX_DRAWN]
        }
        yield draw_roc({model: found for model, found in curves.items() if found})
    if main.classification:
        yield draw_scores(main.classification)
        yield draw_confusion(main.classification)
        yield draw_calibration(main.classification)
    if main.discriminants:
        shown = {name: one for name, one in main.discriminants.items() if name in drawn}
        observers = next(iter(shown.values())).working_points[0].signal_by
        for number, observer in enumerate(observers):
            yield draw_dependence(shown, observer, number)
        mass = draw_mass(shown)
        if mass is not None:
            yield mass
    yield from draw_targets(evaluation.targets)
    if epochs:
        yield draw_training(epochs)


def render(evaluation: Evaluation, figures: Sequence[tuple[Drawing, str]], about: Mapping[str, Any]) -> str:
    """Return the HTML page with figures, each with its image as a data URI; all names are escaped."""
    main = evaluation.main
    model, seeds = next(iter(evaluation.models.items()))
    values = {
        "model": model,
        "num_seeds": len(seeds),
        "main": main,
        "about": about,
        "origin": _scalars(main.origin),
        "files": main.files[:MAX_LISTED],
        "num_more": max(0, len(main.files) - MAX_LISTED),
        "notes": _notes(evaluation),
        "table": evaluation.table,
        "regression_tables": evaluation.regression_tables,
        "shown_rows": shown_rows,
        "predictor_title": predictor_title,
        "regression_legend": regression_legend,
        "all_jets": ALL_JETS,
        "cell_text": cell_text,
        "legend": LEGEND,
        "figures": figures,
        "working_points": [row for one in main.discriminants.values() for row in _working_point_rows(one)],
        "left_out": main.left_out,
    }
    return render_page("partt.evaluation", "report.html.j2", values)


def _scalars(origin: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in origin.items() if isinstance(value, str | int | float)}


def _notes(evaluation: Evaluation) -> list[str]:
    notes = [f"{name}: {note}" for name, seeds in evaluation.models.items() for note in seeds[0].notes]
    for name, seeds in evaluation.models.items():
        if len(seeds) > 1:
            notes.append(f"{name}: figures and working points are of the first of {len(seeds)} seeds")
    if max(len(evaluation.main.class_names), len(evaluation.models)) > MAX_DRAWN:
        notes.append(
            f"figures show the first {MAX_DRAWN} classes, discriminants and models; the tables show all"
        )
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
