"""Tables of regressions as Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from partt.evaluation.regression_table import Place, Predictor, RegressionTable, ResponseRow
from partt.evaluation.responses import ALL_JETS
from partt.evaluation.table_formats import csv_cell, latex_cell, latex_text, markdown_text, plain_text
from partt.pages.number_text import Cell, cell_text

CSV_COLUMNS = (
    "target", "predictor", "model", "seeds", "metric", "class", "observer", "bin_low", "bin_high",
    "jets", "expected", "value", "low", "high", "spread",
)  # fmt: skip


def regression_legend(table: RegressionTable) -> str:
    """Say what the numbers of a table are."""
    unit = f", in {table.unit}" if table.unit else ""
    what = (
        "Bias: median of the response (prediction / true value) - 1"
        if table.is_ratio
        else f"Bias: median of the residual (prediction - true value){unit}"
    )
    return (
        f"{what}; width: half of its central 68 %; with 68 % intervals (stat.); of several seeds the median, "
        "with the standard deviation (seeds). "
        "– means fewer than 10 (effective) jets."
    )


def predictor_title(predictor: Predictor) -> str:
    """Return the heading of a predictor, with its number of seeds."""
    seeds = f" ({len(predictor.seeds)} seeds)" if len(predictor.seeds) > 1 else ""
    return f"{predictor.title}{seeds}"


def shown_rows(table: RegressionTable) -> list[ResponseRow]:
    """Return the rows for people: all jets, classes, and bins of all jets, as far as there are jets."""
    return [
        row
        for row in table.rows
        if max(row.num_jets) and (row.place.group == ALL_JETS or not row.place.observer)
    ]


def regressions_markdown(tables: Sequence[RegressionTable]) -> str:
    """Return the tables for a web page or a README."""
    return "\n".join(_markdown(table) for table in tables)


def _markdown(table: RegressionTable) -> str:
    titles = [predictor_title(predictor) for predictor in table.predictors]
    heading = [table.target, "Jets", *(f"{title} {what}" for title in titles for what in ("bias", "width"))]
    lines = [heading, ["---", *["---:"] * (len(heading) - 1)]]
    for row in shown_rows(table):
        numbers = (plain_text(cell_text(cell)) for pair in _pairs(row) for cell in pair)
        lines.append([row.place.title, f"{max(row.num_jets):,}", *numbers])
    text = _markdown_lines(lines) + f"\n{regression_legend(table)}\n"
    coverage = [row for row in table.coverage if row.group == ALL_JETS]
    if coverage:
        lines = [["Model", "", "expected", "found"], ["---", "---", "---:", "---:"]]
        lines += [
            [titles[row.predictor], row.title, f"{row.expected:.4g}", plain_text(cell_text(row.cell))]
            for row in coverage
        ]
        text += f"\n{_markdown_lines(lines)}"
    return text


def _markdown_lines(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(map(markdown_text, line))} |\n" for line in lines)


def regressions_latex(tables: Sequence[RegressionTable]) -> str:
    """Return tabulars for a paper; they need the LaTeX package booktabs."""
    return "\n".join(_latex(table) for table in tables)


def _latex(table: RegressionTable) -> str:
    titles = [latex_text(predictor_title(predictor)) for predictor in table.predictors]
    groups = "".join(rf" & \multicolumn{{2}}{{c}}{{{title}}}" for title in titles)
    lines = [
        f"% {table.target}. {regression_legend(table)}",
        rf"\begin{{tabular}}{{lr{'rr' * len(titles)}}}",
        r"\toprule",
        rf" & {groups} \\",
        rf"{latex_text(table.target)} & Jets{' & bias & width' * len(titles)} \\",
    ]
    for _, rows in groupby(shown_rows(table), key=lambda row: _part(row.place)):
        lines.append(r"\midrule")
        for row in rows:
            numbers = [latex_cell(cell_text(cell)) for pair in _pairs(row) for cell in pair]
            jets = f"{max(row.num_jets):,}".replace(",", r"\,")
            lines.append(" & ".join([latex_text(row.place.title), jets, *numbers]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    coverage = [row for row in table.coverage if row.group == ALL_JETS]
    if coverage:
        lines += [
            r"\begin{tabular}{llrr}",
            r"\toprule",
            r"Model & & expected & found \\",
            r"\midrule",
            *(
                f"{titles[row.predictor]} & {latex_text(row.title)} & {row.expected:.4g} & "
                rf"{latex_cell(cell_text(row.cell))} \\"
                for row in coverage
            ),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    return "\n".join(lines)


def _part(place: Place) -> str:
    """Return the part of the table that a row belongs to: a line is drawn between parts."""
    return place.observer or ("all" if place.group == ALL_JETS else "classes")


def regressions_csv(tables: Sequence[RegressionTable]) -> str:
    """Return one line for each number, also in bins of each class."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in tables:
        for line in _csv_lines(table):
            writer.writerow(map(csv_cell, line))
    return sink.getvalue()


def _csv_lines(table: RegressionTable) -> Iterator[list[object]]:
    def about(predictor: Predictor, metric: str, place: Place) -> list[object]:
        is_baseline = predictor.regression is None
        return [
            table.target,
            predictor.name,
            "baseline" if is_baseline else predictor.model,
            len(predictor.seeds),
            metric,
            "" if place.group == ALL_JETS else place.group,
            place.observer,
            *("" if math.isnan(edge) else edge for edge in (place.low, place.high)),
        ]

    for row in table.rows:
        for predictor, jets, cells in zip(table.predictors, row.num_jets, _pairs(row), strict=True):
            for metric, cell in zip(("bias", "width"), cells, strict=True):
                yield [*about(predictor, metric, row.place), jets, "", *_numbers(cell)]
    for one in table.coverage:
        predictor = table.predictors[one.predictor]
        yield [*about(predictor, one.metric, Place(one.group)), "", one.expected, *_numbers(one.cell)]


def _pairs(row: ResponseRow) -> list[tuple[Cell | None, Cell | None]]:
    return list(zip(row.biases, row.widths, strict=True))


def _numbers(cell: Cell | None) -> list[object]:
    if cell is None:
        return [""] * 4
    return ["" if not math.isfinite(n) else n for n in (cell.value, cell.low, cell.high, cell.spread)]
