"""Published results as rows of the results table, labelled as from another data set."""

import csv
import math
from importlib import resources

from partt.errors import ConfigError
from partt.evaluation.results_table import ResultsTable, Row, TableColumn
from partt.pages.number_text import Cell
from partt.scores.presets import PRESETS, plain_name

DATA_SETS = {"jetclass": "JetClass", "top": "Top Landscape"}

_Key = tuple[str, float | None]  # signal and efficiency, or metric
_Published = list[tuple[tuple[str, str], dict[_Key, Cell]]]  # model, source -> cells


def published_rows(table: ResultsTable) -> tuple[Row, ...]:
    """Return the published rows of the data set that has the signals of the table, against QCD."""
    wanted = {_key(column) for column in table.columns if column.discriminant is not None}
    for name, data_set in DATA_SETS.items():
        rows = _read(name)
        if wanted & {key for _, cells in rows for key in cells}:
            return tuple(
                Row(
                    model,
                    tuple(cells.get(_key(column)) for column in table.columns),
                    source=f"{source}, {data_set}",
                )
                for (model, source), cells in rows
            )
    known = " and ".join(DATA_SETS.values())
    raise ConfigError(
        f"--published: only signals of {known} against QCD have published results here; those for quark and "
        "gluon jets could not be confirmed"
    )


def _key(column: TableColumn) -> _Key:
    if column.discriminant is None:
        return column.metric, None
    is_usual = [plain_name(name) for name in column.discriminant.backgrounds] == ["qcd"]
    return plain_name(column.discriminant.signal) if is_usual else "", column.efficiency


def _read(name: str) -> _Published:
    """Return (model, source) and numbers, by signal and efficiency or by metric."""
    text = resources.files("partt.evaluation").joinpath(f"published/{name}.csv").read_text(encoding="utf-8")
    found: _Published = []
    for line in csv.DictReader(text.splitlines()):
        cells: dict[_Key, Cell] = {
            (metric, None): Cell(float(line[metric])) for metric in ("accuracy", "auc") if line[metric]
        }
        if name == "jetclass":
            preset = PRESETS[name]
            for signal in preset.signals:
                (efficiency,) = preset.special.get(signal, preset.efficiencies)
                if line[signal]:
                    cells[plain_name(signal), efficiency] = Cell(float(line[signal]))
            number = line["training_jets"]
            model = f"{line['model']} ({number} jets)" if number else line["model"]
        else:
            for percent in (30, 50):
                value, spread = line[f"rejection_at_{percent}"], line[f"rejection_at_{percent}_err"]
                if value:
                    cells["top", percent / 100] = Cell(
                        float(value), spread=float(spread) if spread else math.nan
                    )
            model = line["model"]
        found.append(((model, line["source"]), cells))
    return found
