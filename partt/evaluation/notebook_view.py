"""What a notebook shows of an evaluation: its tables and its main figures, without a report folder."""

from collections.abc import Iterator
from html import escape

from partt.evaluation.figures.confusion import draw_confusion
from partt.evaluation.figures.experiment_label import labelled
from partt.evaluation.figures.regression_figures import draw_targets
from partt.evaluation.figures.roc_curves import draw_roc
from partt.evaluation.regression_formats import predictor_title
from partt.evaluation.results import Evaluation
from partt.evaluation.shown import shown_curves
from partt.evaluation.table_formats import legend, plain_text, row_title
from partt.pages.drawing import Drawing
from partt.pages.number_text import cell_text
from partt.pages.style import house_style, png_uri

MAX_LINES = 24  # of the table


def evaluation_html(evaluation: Evaluation) -> str:
    """Return the tables, upright so that they fit, and figures: ROC curves, confusion, responses."""
    table = evaluation.table
    parts = []
    if table.rows:
        columns = table.columns[:MAX_LINES]
        heads = [row_title(row) for row in table.rows]
        lines = [
            [column.title, *(plain_text(cell_text(row.cells[number])) for row in table.rows)]
            for number, column in enumerate(columns)
        ]
        parts.append(_table(["", *heads], lines))
        if len(table.columns) > MAX_LINES:
            parts.append(f"<p>and {len(table.columns) - MAX_LINES} more rejections</p>")
        parts.append(f"<p><small>{escape(legend(table))}</small></p>")
    for one in evaluation.regression_tables:
        heads = [predictor_title(predictor) for predictor in one.predictors]
        lines = [
            [f"{what}, {row.place.group}", *(plain_text(cell_text(cell)) for cell in cells)]
            for row in one.rows
            if not row.place.observer
            for what, cells in (("bias", row.biases), ("width", row.widths))
        ]
        parts.append(_table([one.target, *heads], lines[:MAX_LINES]))
    with house_style():
        for drawing in (labelled(plain, evaluation.label) for plain in _main_figures(evaluation)):
            width = round(80 * drawing.width)
            parts.append(
                f"<img src='{png_uri(drawing.figure)}' alt='{escape(drawing.title)}' "
                f"style='max-width:100%' width='{width}'>"
            )
    return "".join(parts)


def _main_figures(evaluation: Evaluation) -> Iterator[Drawing]:
    main = evaluation.main
    if curves := shown_curves(evaluation.models):
        yield draw_roc(curves)
    if main.classification:
        yield draw_confusion(main.classification)
    for number, drawing in enumerate(draw_targets(evaluation.targets)):
        if number == 0:
            yield drawing


def _table(heads: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(line[0])}</th>"
        + "".join(f"<td>{escape(text)}</td>" for text in line[1:])
        + "</tr>"
        for line in lines
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
