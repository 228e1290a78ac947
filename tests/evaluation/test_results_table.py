"""The results table: rounding, limits, seeds, published rows, and its formats."""

import csv
import io
import math

import pytest

import partt
from partt.errors import ConfigError
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.published import published_rows
from partt.evaluation.results_table import ResultsTable, Row, TableColumn, make_table
from partt.evaluation.table_formats import plain_text, to_csv, to_latex, to_markdown
from partt.pages.number_text import Cell, cell_text
from partt.scores.presets import QuotedDiscriminant
from toy_scores import CLASSES, random_scores


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(10638.3, 9530.0, 12040.0, num_background=61), "10,600 +1,400 −1,100 [61]"),
        (Cell(0.86123, 0.86123 - 0.00034, 0.86123 + 0.00034), "0.86123 ± 0.00034"),
        (Cell(4.0, 3.0, math.inf, num_background=1), "4.0 +∞ −1.0 [1]"),
        (Cell(48.9, 48.9, math.inf, num_background=0, is_limit=True), "> 49 [0]"),
        (
            Cell(1234.0, 1100.0, 1400.0, spread=56.0, num_background=80),
            "1,234 +166 −134 (stat.) ± 56 (seeds) [80]",
        ),
        (Cell(1234.0, spread=56.0), "1,234 ± 56 (seeds)"),
        (Cell(1.0, 1.0, 1.0, num_background=10), "1.000 [10]"),
        (Cell(0.85), "0.850"),
        (Cell(32787.0), "32,787"),
        (None, "–"),
    ],
)
def test_numbers_have_the_digits_that_their_error_allows(cell, text):
    assert plain_text(cell_text(cell)) == text


def evaluate(seed=0, sharpness=1.5, classes=CLASSES):
    return scores_from_arrays(classes, *random_scores(1500, seed, classes, sharpness))


def test_seeds_are_combined_to_median_and_spread():
    single = [partt.evaluate(evaluate(seed)).table.rows[0] for seed in range(3)]
    (row,) = partt.evaluate([evaluate(seed) for seed in range(3)], name="ParT").table.rows
    assert (row.model, row.num_seeds) == ("ParT", 3)
    for number, cell in enumerate(row.cells):
        values = [one.cells[number].value for one in single]
        mean = sum(values) / 3
        assert cell.value == sorted(values)[1]
        assert cell.spread == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 2))


def test_a_seed_without_background_makes_a_limit():
    sharp, dull = partt.evaluate(evaluate(0, 30.0)), partt.evaluate(evaluate(1, 1.0))
    seeds = {"both": [sharp.main, dull.main]}
    cell = make_table(sharp.settings.discriminants, seeds).rows[0].cells[2]
    assert cell.is_limit
    assert cell.value == min(sharp.table.rows[0].cells[2].low, dull.table.rows[0].cells[2].low)


def test_models_of_other_classes_are_compared_where_they_can(capsys):
    found = partt.evaluate(evaluate(), compare={"Top": evaluate(classes=("QCD", "Hbb"))})
    assert found.table.rows[1].cells[2] is not None
    assert found.table.rows[1].cells[3] is None
    assert "no result, because there are no jets of Tbl" in found.models["Top"][0].notes[0]


def table_of(*discriminants):
    columns = (TableColumn("accuracy"), TableColumn("auc"))
    columns += tuple(
        TableColumn("rejection", one, value) for one in discriminants for value in one.efficiencies
    )
    return ResultsTable(columns, ())


def test_published_rows_are_labelled():
    rows = published_rows(
        table_of(
            QuotedDiscriminant(("Hbb",), {"QCD": 1.0}), QuotedDiscriminant(("Tbl",), {"QCD": 1.0}, (0.995,))
        )
    )
    part = next(row for row in rows if row.model == "ParT (100M jets)")
    assert [cell.value for cell in part.cells] == [0.861, 0.9877, 10638, 15873]
    assert part.source == "arXiv:2202.03772, JetClass"
    assert "another data set" in to_markdown(ResultsTable(table_of().columns, (part,)))
    assert len({(row.model, row.source) for row in rows}) == len(rows) == 60
    few = next(row for row in rows if row.model == "L-GATr-slim m, four-momenta only (100M jets)")
    assert [cell and cell.value for cell in few.cells] == [0.7475, 0.96598, None, None]
    frozen = next(row for row in rows if row.model == "frozen backbone, SSFM")
    assert frozen.cells[0].value == 0.82937
    tops = published_rows(table_of(QuotedDiscriminant(("jet_isTop",), {"jet_isQCD": 1.0}, (0.3, 0.5))))
    top = next(row for row in tops if row.model == "ParT")
    assert [cell and cell.value for cell in top.cells] == [0.940, 0.9858, 1602, 413]
    assert (top.cells[2].spread, top.source) == (81, "arXiv:2512.17011, Top Landscape")
    with pytest.raises(ConfigError, match="quark and gluon jets could not be confirmed"):
        published_rows(table_of(QuotedDiscriminant(("Q",), {"G": 1.0}, (0.3, 0.5))))
    with pytest.raises(ConfigError, match="JetClass and Top Landscape against QCD"):
        published_rows(table_of(QuotedDiscriminant(("Hbb",), {"QCD": 0.9, "Zqq": 0.1})))


def test_formats_escape_names():
    table = ResultsTable(
        (
            TableColumn("accuracy"),
            TableColumn("rejection", QuotedDiscriminant(("<b>|_&$",), {"QCD": 1.0}), 0.5),
        ),
        (
            Row(
                "50% of_it",
                (Cell(0.5, 0.4, 0.6), Cell(20.0, 10.0, math.inf, num_background=3)),
                num_jets=1000,
            ),
            Row("none", (None, Cell(9.0, 9.0, math.inf, num_background=0, is_limit=True)), num_jets=10),
        ),
    )
    markdown = to_markdown(table).splitlines()
    assert markdown[0] == r"| Model | Jets | Accuracy | \<b\>\|\_&\$ Rej 50% |"
    assert markdown[2] == r"| 50% of\_it | 1,000 | 0.50 ± 0.10 | 20 +∞ −10 [3] |"
    assert markdown[3] == r"| none | 10 | – | > 9.0 [0] |"
    latex = to_latex(table)
    assert r"\textless{}b\textgreater{}|\_\&\$ Rej 50\%" in latex
    assert r"50\% of\_it & $0.50 \pm 0.10$ & $20^{+\infty}_{-10}$ [3] \\" in latex
    assert r"none & -- & $> 9.0$ [0] \\" in latex
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert lines[1]["signal"] == "<b>|_&$"
    assert (lines[1]["value"], lines[1]["high"], lines[1]["background_jets"]) == ("20.0", "", "3")
    assert lines[3]["is_limit"] == "True"
