"""The page of an explanation: figures, tables, jets to look at, and all numbers as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from partt.atomic_files import staged_files, write_text
from partt.explanation.ablation import AblationStudy
from partt.explanation.attended_particles import RelativeAttention
from partt.explanation.explanation_json import displays_for_page, explanation_json
from partt.explanation.explanation_results import Explanation
from partt.explanation.figures.ablation_map import draw_ablation
from partt.explanation.figures.attended_map import draw_attended
from partt.explanation.figures.embedding_panels import draw_embedding
from partt.explanation.figures.gradient_map import draw_gradients
from partt.explanation.figures.head_panels import draw_heads
from partt.explanation.figures.importance_bars import draw_importance
from partt.explanation.figures.jet_picture import KIND_COLOURS, OTHER_COLOUR
from partt.explanation.integrated_gradients import TOLERANCE
from partt.explanation.permutation_importance import Importance
from partt.explanation.score_losses import MIN_PASSING, Loss
from partt.jobs.output_folder import writing_to
from partt.pages.drawing import Drawing
from partt.pages.explanation_link import EXPLANATION_NUMBERS as NUMBERS
from partt.pages.explanation_link import EXPLANATION_PAGE as PAGE
from partt.pages.number_text import Cell, CellText, cell_text
from partt.pages.page_folder import PageFolder, about_page, files_of, render_page, write_any_text
from partt.pages.style import house_style, write_figure

VERSIONS_OF = ("torch", "numpy", "scipy", "matplotlib", "mplhep")
FOLDER = PageFolder("partt explain", NUMBERS)
STAGE = "explanation"  # the temporary folder
MAX_LISTED = 20  # files


def refuse_foreign_files(folder: Path, *, overwrite: bool) -> None:
    """Raise an error if a page would replace a file that is not of an earlier one."""
    FOLDER.refuse_foreign_files(folder, [NUMBERS, PAGE], overwrite=overwrite)


def write_explanation(
    found: Explanation, folder: Path, *, command: str = "", overwrite: bool = False
) -> None:
    """Write explanation.html, explanation.json, and figures as PDF and PNG; all files, or none."""
    about = about_page(command, VERSIONS_OF)
    with writing_to(folder, [folder / STAGE]), staged_files(folder, STAGE, first=NUMBERS) as stage:
        with house_style():
            figures = {
                drawing.name: (drawing, write_figure(drawing.figure, stage / "figures", drawing.name))
                for drawing in draw_figures(found)
            }
        write_any_text(stage / PAGE, render(found, figures, about))
        made = files_of(stage)
        write_text(stage / NUMBERS, explanation_json(found, {**about, "files": made}))
        FOLDER.refuse_foreign_files(folder, [NUMBERS, *made], overwrite=overwrite)


def draw_figures(found: Explanation) -> Iterator[Drawing]:
    """Draw every figure that there are numbers for."""
    if found.importances:
        yield draw_importance(found.importances)
    if found.gradients is not None:
        yield draw_gradients(found.gradients, found.class_names)
    if found.attention is not None:
        yield draw_heads(found.attention.heads)
        if attended := _measured(found.attention.attended):
            yield draw_attended(
                "attended",
                "Who is attended",
                "How much attention the class token gives to particles, mean over heads and class blocks, "
                "relative to a uniform share of 1/n each: 2 is twice as much as chance. Empty: too few "
                "such particles. Intervals are in explanation.json.",
                attended,
                found.class_names,
            )
        if subjets := _measured(found.attention.subjets):
            yield draw_attended(
                "subjets",
                "Inside and between subjets",
                "Attention of particles to those of their own exclusive kT subjet and to those of others, "
                "mean over heads and blocks, relative to uniform attention.",
                subjets,
                found.class_names,
            )
    if found.ablations is not None:
        yield draw_ablation(found.ablations)
    if found.embedding is not None:
        yield draw_embedding(found.embedding, found.class_names)


def _measured(found: Sequence[RelativeAttention]) -> list[RelativeAttention]:
    """Return the panels that have a number: jets may have too few particles of a kind."""
    return [one for one in found if np.isfinite(one.values).any()]


def render(found: Explanation, figures: Mapping[str, tuple[Drawing, str]], about: Mapping[str, Any]) -> str:
    """Return the HTML page with figures, each with its image as a data URI; all names are escaped."""
    colours = {**KIND_COLOURS, "": OTHER_COLOUR}
    rejections = [name for name, efficiency in found.efficiencies.items() if efficiency is not None]
    gradients, attention = found.gradients, found.attention
    values = {
        "found": found,
        "about": about,
        "figures": figures,
        "files": found.files[:MAX_LISTED],
        "num_more": max(0, len(found.files) - MAX_LISTED),
        "columns": [
            (found.titles[name], f"{100 * (found.efficiencies[name] or 0):g} %") for name in rejections
        ],
        "unmeasured": [found.titles[name] for name in found.efficiencies if name not in rejections],
        "min_passing": MIN_PASSING,
        "rows": _importance_rows(found.importances, rejections),
        "completeness": None if gradients is None else _completeness(gradients.completeness),
        "tolerance": f"{100 * TOLERANCE:g} %",
        "correlations": None if attention is None else _range(attention.heads.correlations),
        "near_binary": None if attention is None else float(attention.heads.means[:, :, 0, 3].mean()),
        "pruning": None if found.ablations is None else _pruning(found.ablations),
        "displays": displays_for_page(found.displays, colours),
        "kinds": {
            kind: colour
            for kind, colour in KIND_COLOURS.items()
            if any(kind in jet.kinds for jet in found.displays)
        },
    }
    return render_page("partt.explanation", "explanation.html.j2", values)


def _importance_rows(found: Sequence[Importance], rejections: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.change.name,
            "kind": one.change.kind,
            "columns": ", ".join(one.change.columns) if len(one.change.columns) > 1 else "",
            "cells": [
                _cell(one.losses.area),
                _cell(one.losses.accuracy, 100),
                *(_cell(one.losses.rejections.get(name), 100) for name in rejections),
            ],
        }
        for one in found
    ]


def _cell(loss: Loss | None, scale: float = 1.0) -> tuple[float, CellText]:
    """Return the value to sort by, and the text of a loss."""
    if loss is None or not np.isfinite(loss.loss):
        return -1e9, cell_text(None)
    cell = Cell(scale * loss.loss, scale * loss.low, scale * loss.high)
    return cell.value, cell_text(cell)


def _completeness(errors: Any) -> dict[str, str]:
    return {
        "mean": f"{100 * float(errors.mean()):.2g} %",
        "largest": f"{100 * float(errors.max(initial=0.0)):.2g} %",
    }


def _range(values: Any) -> str | None:
    known = values[np.isfinite(values)]
    return f"{known.min():.2f} to {known.max():.2f}" if len(known) else None


def _pruning(found: AblationStudy) -> str:
    if found.together is None:
        return f"None of the {found.num_heads} heads can be switched off without a loss beyond its interval."
    off = len(found.together.heads)
    names = ", ".join(f"{block} head {head + 1}" for block, head in sorted(found.together.heads))
    return (
        f"The smallest set of heads within the errors: {found.num_heads - off} of {found.num_heads}. Without "
        f"{names}, no accuracy, AUC or rejection loses more than its 68 % interval "
        f"(accuracy {100 * found.together.losses.accuracy.after:.1f} %, "
        f"before {100 * found.together.losses.accuracy.before:.1f} %)."
    )
