"""The report: tables, figures, JSON files, and one HTML page with all of it that needs nothing else."""

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from partt import __version__
from partt.atomic_files import write_text
from partt.evaluation.corrections import to_correctionlib
from partt.evaluation.evaluate import Evaluation
from partt.evaluation.figures.calibration import draw_calibration
from partt.evaluation.figures.confusion import draw_confusion
from partt.evaluation.figures.mass import draw_mass
from partt.evaluation.figures.observer_dependence import draw_dependence
from partt.evaluation.figures.roc import draw_roc
from partt.evaluation.figures.score_distributions import draw_scores
from partt.evaluation.figures.style import house_style, write_figure
from partt.evaluation.figures.training import draw_training
from partt.evaluation.json_files import metrics_json, working_points_json
from partt.evaluation.number_text import cell_text, efficiency_text
from partt.evaluation.sculpting import MIN_PASSING
from partt.evaluation.summary import DiscriminantSummary
from partt.evaluation.tables import LEGEND, to_csv, to_latex, to_markdown

VERSIONS_OF = ("numpy", "scipy", "hist", "matplotlib", "mplhep")
MAX_LISTED = 20  # score files
CAPTIONS = {
    "roc": "Bands are 68 % intervals. A curve ends where no background jet passes. Point at one to read it.",
    "scores": "Each score for jets of all true classes; its own class is filled.",
    "confusion": "The class with the highest score. Rows add up to 100 %.",
    "calibration": "How often the class with the highest score is the true one. ECE: the mean difference "
    "between the two, over jets.",
    "efficiency": "At the first working point of each discriminant. Points of one bin stand side by side; "
    "arrows are lower limits, where no background jet passes.",
    "mass": "Background before and after the first working point of each discriminant, where "
    f"{MIN_PASSING} jets or more pass. Jensen-Shannon distance: 0 equal, 1 without overlap; chance: what as "
    "many jets have without any sculpting, on average.",
    "training": "Losses and metrics of the run.",
}


@dataclass(frozen=True)
class FigureOnPage:
    """A figure with its words."""

    name: str  # of the files
    title: str
    caption: str
    image: str  # data URI
    width: float  # inches
    hover: Sequence[dict[str, Any]]


def write_report(
    evaluation: Evaluation,
    folder: Path,
    *,
    epochs: Sequence[Mapping[str, Any]] = (),
    weights: str | None = None,
    command: str = "",
) -> None:
    """Write report.html, the figures, and the tables and numbers in all formats."""
    model = next(iter(evaluation.models))
    about = {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "weights": weights,
        "versions": {
            "partt": __version__,
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in VERSIONS_OF},
        },
    }
    with house_style():
        figures = draw_figures(evaluation, folder / "figures", epochs)
    write_text(folder / "table.md", to_markdown(evaluation.table))
    write_text(folder / "table.tex", to_latex(evaluation.table))
    write_text(folder / "metrics.csv", to_csv(evaluation.table))
    write_text(folder / "metrics.json", metrics_json(evaluation, about))
    if evaluation.main.discriminants:
        write_text(folder / "working_points.json", working_points_json(evaluation.main, model))
        write_text(folder / "efficiencies.json", to_correctionlib(evaluation.main))
    write_text(folder / "report.html", render(evaluation, figures, about))


def draw_figures(
    evaluation: Evaluation, folder: Path, epochs: Sequence[Mapping[str, Any]]
) -> list[FigureOnPage]:
    """Draw what there are numbers for; write each figure as PDF and PNG."""
    main = evaluation.main
    found: list[FigureOnPage] = []

    def add(name: str, title: str, figure: Figure, hover: Sequence[dict[str, Any]] = ()) -> None:
        caption, width = CAPTIONS[name.partition("_")[0]], float(figure.get_figwidth())
        found.append(FigureOnPage(name, title, caption, write_figure(figure, folder, name), width, hover))

    if main.discriminants:
        curves = {model: seeds[0].discriminants for model, seeds in evaluation.models.items()}
        figure, hover = draw_roc({model: found for model, found in curves.items() if found})
        add("roc", "ROC curves", figure, hover)
    add("scores", "Scores", draw_scores(main))
    add("confusion", "Confusion matrix", draw_confusion(main))
    add("calibration", "Calibration", draw_calibration(main))
    if main.discriminants:
        observers = next(iter(main.discriminants.values())).working_points[0].signal_by
        for number, observer in enumerate(observers):
            title = f"Efficiency and rejection against {observer}"
            name = observer if observer.isidentifier() else f"observer_{number}"
            add(f"efficiency_{name}", title, draw_dependence(main.discriminants, observer))
        mass = draw_mass(main.discriminants)
        if mass is not None:
            add("mass", "Mass sculpting", mass)
    if epochs:
        add("training", "Training", draw_training(epochs))
    return found


def render(evaluation: Evaluation, figures: Sequence[FigureOnPage], about: Mapping[str, Any]) -> str:
    """Return the page; everything that users named is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("partt.evaluation", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    main = evaluation.main
    model, seeds = next(iter(evaluation.models.items()))
    return environment.get_template("report.html.j2").render(
        model=model,
        num_seeds=len(seeds),
        main=main,
        about=about,
        origin=_scalars(main.origin),
        files=main.files[:MAX_LISTED],
        num_more=max(0, len(main.files) - MAX_LISTED),
        notes=_notes(evaluation),
        table=evaluation.table,
        cell_text=cell_text,
        legend=LEGEND,
        figures=figures,
        working_points=[row for one in main.discriminants.values() for row in _working_point_rows(one)],
        left_out=main.left_out,
    )


def _scalars(origin: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in origin.items() if isinstance(value, str | int | float)}


def _notes(evaluation: Evaluation) -> list[str]:
    notes = [f"{name}: {note}" for name, seeds in evaluation.models.items() for note in seeds[0].notes]
    for name, seeds in evaluation.models.items():
        if len(seeds) > 1:
            notes.append(f"{name}: figures and working points are those of the first of {len(seeds)} seeds")
    if evaluation.main.discriminants and not any(
        one.sculpting for one in evaluation.main.discriminants.values()
    ):
        notes.append(
            "no figure of the background's mass: no such observer in the scores, or fewer than "
            f"{MIN_PASSING} jets pass"
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
