"""predict.json: a summary of all outputs in a folder."""

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import partt
from partt.atomic_files import refuse_foreign, write_text
from partt.config import Record
from partt.errors import DataError
from partt.model.tasks import Task
from partt.prediction.outputs import alone
from partt.regular_files import MAX_BYTES, read_bounded
from partt.scores.origin import Balance, sum_of
from partt.scores.scores import SUMMARY_FILE


class OutputEntry(Record):
    """An output."""

    output: str  # relative to the folder of predict.json
    input: str
    rows: int
    balance: Balance


class BadInput(Record):
    """An input without an output."""

    input: str
    reason: str


class PredictSummary(Record):
    """The contents of predict.json: the outputs of one tagger with the same options, and other records."""

    format_version: int = 1
    tagger_sha256: str
    network: str
    class_names: list[str]
    regressions: Annotated[tuple[Task, ...], Field(strict=False)] = ()
    options: dict[str, Any]
    versions: dict[str, str]
    balance: Balance
    jets_per_second: float | None  # of the last command; None if it had nothing to do
    outputs: list[OutputEntry]
    bad_files: list[BadInput]
    left_out: list[str]  # columns that could not be copied, and why
    others: list["PredictSummary"] = Field(default_factory=list)  # of other taggers or options in the folder


def check_summary(folder: Path, *, overwrite: bool) -> None:
    """Raise an error if there is a predict.json of other origin, unless it may be overwritten."""
    path = folder / SUMMARY_FILE
    refuse_foreign(path, "partt predict", lambda _: _read(path) is not None, overwrite=overwrite)


def write_summary(folder: Path, new: PredictSummary) -> PredictSummary:
    """Write predict.json; records of other outputs in the folder are kept."""
    path = folder / SUMMARY_FILE
    with alone(folder):
        before = _read(path)
        if before is not None:
            new = _merged(folder, [before.replace(others=[]), *before.others], new)
        write_text(path, json.dumps(new.model_dump(mode="json"), indent=1) + "\n")
    return new


def versions(engine: str) -> dict[str, str]:
    """Return the versions of partt and of the packages that results depend on."""
    packages = (engine, "numpy", "uproot", "awkward")
    known = {"partt": partt.__version__, "python": platform.python_version()}
    return known | {package: version(package) for package in packages}


def _read(path: Path) -> PredictSummary | None:
    try:
        return PredictSummary.model_validate_json(read_bounded(path, MAX_BYTES))
    except (DataError, ValueError, RecursionError):
        return None


def _settings(summary: PredictSummary) -> tuple[str, list[str], dict[str, Any]]:
    return summary.tagger_sha256, summary.class_names, summary.options


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a path: the file was changed by hand
        return False


def _merged(folder: Path, records: Sequence[PredictSummary], new: PredictSummary) -> PredictSummary:
    """Return the new record with the outputs of earlier ones that still exist."""
    replaced = {entry.output for entry in new.outputs}
    bad = {file.input for file in new.bad_files}
    others = []
    for record in records:
        same = _settings(record) == _settings(new)
        outputs = [
            entry
            for entry in record.outputs
            if entry.output not in replaced
            and _exists(folder / entry.output)
            and not (same and entry.input in bad)
        ]
        if same:
            new = _extended(new, record, outputs)
        elif outputs:
            balance = sum_of([entry.balance for entry in outputs])
            others.append(record.replace(outputs=outputs, balance=balance, others=[]))
    return new.replace(others=others)


def _extended(new: PredictSummary, before: PredictSummary, kept: list[OutputEntry]) -> PredictSummary:
    """Return the new record with those outputs of an earlier one that are kept."""
    known = {entry.input for entry in new.outputs} | {file.input for file in new.bad_files}
    outputs = sorted([*kept, *new.outputs], key=lambda entry: entry.output)
    return new.replace(
        outputs=outputs,
        bad_files=[*(file for file in before.bad_files if file.input not in known), *new.bad_files],
        balance=sum_of([entry.balance for entry in outputs]),
        left_out=list(dict.fromkeys([*before.left_out, *new.left_out])),
    )
