"""The results table as Markdown, LaTeX and CSV."""

import csv
import io
import math
import re
from collections.abc import Sequence

from partt.evaluation.results_table import ResultsTable, Row
from partt.pages.number_text import Cell, CellText, cell_text

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def legend(table: ResultsTable) -> str:
    """Say what the numbers of a table mean, as far as it has such numbers."""
    parts = ["68 % intervals, with the number of background jets that pass."]
    cells = [cell for row in table.rows for cell in row.cells if cell]
    if any(math.isfinite(cell.spread) for cell in cells):
        parts.append(
            "(stat.) is the uncertainty from the number of jets, (seeds) the standard deviation over the "
            "seeds, whose median is quoted."
        )
    if any(cell.is_limit for cell in cells):
        parts.append("> is a lower limit: no background jet passes.")
    return " ".join(parts)


def to_markdown(table: ResultsTable) -> str:
    """Return the table for a web page or a README."""
    heading = ["Model", "Jets", *(column.title for column in table.columns)]
    lines = [heading]
    for row in table.rows:
        jets = "" if row.num_jets is None else f"{row.num_jets:,}"
        lines.append([row_title(row), jets, *(plain_text(cell_text(cell)) for cell in row.cells)])
    if table.is_upright:
        lines = [list(line) for line in zip(*lines, strict=True)]
    lines.insert(1, ["---", *["---:"] * (len(lines[0]) - 1)])
    return "".join(f"| {' | '.join(map(markdown_text, line))} |\n" for line in lines) + f"\n{legend(table)}\n"


def to_latex(table: ResultsTable) -> str:
    """Return a tabular for a paper; it needs the LaTeX package booktabs."""
    if table.is_upright:
        return _upright_latex(table)
    lines = [
        " & ".join(["Model", *(latex_text(column.title) for column in table.columns)]) + r" \\",
        r"\midrule",
    ]
    for number, row in enumerate(table.rows):
        if row.source and number and not table.rows[number - 1].source:
            lines.append(r"\midrule")
        cells = [latex_cell(cell_text(cell)) for cell in row.cells]
        lines.append(" & ".join([latex_text(row_title(row)), *cells]) + r" \\")
    return _tabular(table, lines, len(table.columns))


def _upright_latex(table: ResultsTable) -> str:
    titles = [latex_text(row_title(row)) for row in table.rows]
    lines = [" & ".join(["", *titles]) + r" \\", r"\midrule"]
    for number, column in enumerate(table.columns):
        cells = [latex_cell(cell_text(row.cells[number])) for row in table.rows]
        lines.append(" & ".join([latex_text(column.title), *cells]) + r" \\")
    return _tabular(table, lines, len(table.rows))


def _tabular(table: ResultsTable, lines: Sequence[str], num_columns: int) -> str:
    begin, end = rf"\begin{{tabular}}{{l{'r' * num_columns}}}", r"\end{tabular}"
    return "\n".join([f"% {legend(table)}", begin, r"\toprule", *lines, r"\bottomrule", end, ""])


def to_csv(table: ResultsTable) -> str:
    """Return one line for each model and number."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(
        ["model", "source", "seeds", "jets", "metric", "signal", "background", "signal_efficiency",
         "value", "low", "high", "spread", "background_jets", "is_limit"]
    )  # fmt: skip
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            one = column.discriminant
            about = [one.signal, "+".join(one.backgrounds), column.efficiency] if one else ["", "", ""]
            writer.writerow(
                map(
                    csv_cell,
                    [
                        row.model,
                        row.source,
                        row.num_seeds,
                        row.num_jets,
                        column.metric,
                        *about,
                        *_numbers(cell),
                    ],
                )
            )
    return sink.getvalue()


def row_title(row: Row) -> str:
    """Return the model, with its source or its number of seeds."""
    if row.source:
        return f"{row.model} [{row.source}: another data set]"
    return f"{row.model} ({row.num_seeds} seeds)" if row.num_seeds > 1 else row.model


def plain_text(cell: CellText) -> str:
    """Return a cell on one line."""
    symmetric = f" ± {cell.up}" if cell.up else ""
    error = symmetric if cell.up == cell.down else f" +{cell.up} −{cell.down}"
    if cell.spread:
        error = f"{error} (stat.) ± {cell.spread} (seeds)" if error else f" ± {cell.spread} (seeds)"
    return f"{cell.value}{error}" + (f" [{cell.count}]" if cell.count else "")


def _numbers(cell: Cell | None) -> list[object]:
    if cell is None:
        return [""] * 6
    numbers = ["" if not math.isfinite(n) else n for n in (cell.value, cell.low, cell.high, cell.spread)]
    return [*numbers, "" if cell.num_background is None else cell.num_background, cell.is_limit]


def csv_cell(value: object) -> object:
    """Keep spreadsheets from taking a text for a formula: ' marks it as text. Numbers stay numbers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def markdown_text(text: str) -> str:
    """Escape what Markdown interprets."""
    return re.sub(r"([|<>`*_\[\]\\$])", r"\\\1", text) if re.search(r"[A-Za-z<]", text) else text


def latex_text(text: str) -> str:
    """Escape what LaTeX interprets."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def latex_cell(cell: CellText) -> str:
    """Return a cell as LaTeX."""
    value = cell.value.replace(",", r"\,").replace(">", r">")
    if cell.up == cell.down:
        number = rf"{value} \pm {cell.up}" if cell.up else value
    else:
        up = cell.up.replace("∞", r"\infty")
        number = rf"{value}^{{+{up}}}_{{-{cell.down}}}"
    if cell.spread:
        statistical = r"\,\mathrm{(stat.)}" if cell.up else ""
        number = rf"{number}{statistical} \pm {cell.spread}\,\mathrm{{(seeds)}}"
    if number == "–":
        return "--"
    return f"${number.replace(',', r'{,}')}$" + (f" [{cell.count}]" if cell.count else "")
