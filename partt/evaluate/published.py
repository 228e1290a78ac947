"""Published results as rows of the results table; they are from other data sets, and labelled so."""

import csv
import math
from importlib import resources

from partt.errors import ConfigError
from partt.evaluate.discriminants import PRESETS
from partt.evaluate.results_table import Cell, Column, ResultsTable, Row

SOURCES = {"paper": "arXiv:2202.03772", "guide": "arXiv:2608.02735"}
DATA_SETS = {"jetclass": "JetClass", "top": "Top Landscape"}


def published_rows(table: ResultsTable) -> tuple[Row, ...]:
    """Return the published rows that have the columns of a table.

    The data set is the one whose usual columns the table has.
    """
    wanted = {
        (column.discriminant.signal.lower(), column.efficiency)
        for column in table.columns
        if column.discriminant
    }
    for name, data_set in DATA_SETS.items():
        rows = _read(name)
        if wanted & set(rows[0][1]):
            return tuple(
                Row(
                    model=model,
                    cells=tuple(_find(column, cells) for column in table.columns),
                    source=f"{source}, {data_set}",
                )
                for (model, source), cells in rows
            )
    raise ConfigError(
        f"--published: there are results for the classes of {' and '.join(DATA_SETS.values())}, not for these"
    )


_Key = tuple[str, float | None]
_Published = list[tuple[tuple[str, str], dict[_Key, Cell]]]


def _find(column: Column, cells: dict[_Key, Cell]) -> Cell | None:
    if column.discriminant is None:
        return cells.get((column.metric, None))
    signal = column.discriminant.signal.lower().removeprefix("jet_").removeprefix("is")
    return cells.get((signal, column.efficiency))


def _read(name: str) -> _Published:
    """Return (model, source) and the numbers, by signal and efficiency, or by metric."""
    text = resources.files("partt.evaluate").joinpath(f"published/{name}.csv").read_text(encoding="utf-8")
    found: _Published = []
    for line in csv.DictReader(text.splitlines()):
        cells: dict[_Key, Cell] = {}
        if name == "jetclass":
            preset = PRESETS[name]
            for metric in ("accuracy", "auc"):
                cells[metric, None] = Cell(float(line[metric]))
            for signal in preset.signals:
                (efficiency,) = preset.special.get(signal, preset.efficiencies)
                cells[signal.lower(), efficiency] = Cell(float(line[signal]))
            model = f"{line['model']} ({line['training_jets']} jets)"
        else:
            for percent in (30, 50):
                spread = line[f"rejection_at_{percent}_err"]
                value = float(line[f"rejection_at_{percent}"])
                cells["top", percent / 100] = Cell(value, spread=float(spread) if spread else math.nan)
            model = line["model"]
        found.append(((model, SOURCES[line["source"]]), cells))
    return found
