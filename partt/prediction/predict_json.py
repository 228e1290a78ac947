"""predict.json: a summary of all outputs in a folder."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import partt
from partt.atomic_files import write_text
from partt.config import Record
from partt.prediction.outputs import alone
from partt.prediction.provenance import Balance, sum_of
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
    """The contents of predict.json."""

    format_version: int = 1
    tagger_sha256: str
    network: str
    class_names: list[str]
    options: dict[str, Any]
    versions: dict[str, str]
    balance: Balance
    jets_per_second: float | None  # of the last command; None if it had nothing to do
    outputs: list[OutputEntry]
    bad_files: list[BadInput]
    left_out: list[str]  # columns that could not be copied, and why


def write_summary(folder: Path, new: PredictSummary) -> PredictSummary:
    """Write predict.json; outputs of other commands with the same tagger and options stay listed."""
    path = folder / SUMMARY_FILE
    with alone(folder):
        try:
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            before = PredictSummary.model_validate_json(text)
        except (OSError, ValueError):
            before = None
        if before is not None and _settings(before) == _settings(new):
            new = _merged(folder, before, new)
        write_text(path, json.dumps(new.model_dump(mode="json"), indent=1) + "\n")
    return new


def versions(engine: str) -> dict[str, str]:
    """Return the versions of partt and of the packages that results depend on."""
    packages = (engine, "numpy", "uproot", "awkward")
    known = {"partt": partt.__version__, "python": platform.python_version()}
    return known | {package: version(package) for package in packages}


def _settings(summary: PredictSummary) -> tuple[str, list[str], dict[str, Any]]:
    return summary.tagger_sha256, summary.class_names, summary.options


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no path at all: somebody has changed predict.json
        return False


def _merged(folder: Path, before: PredictSummary, new: PredictSummary) -> PredictSummary:
    known = {entry.input for entry in new.outputs} | {file.input for file in new.bad_files}
    others = [
        entry for entry in before.outputs if entry.input not in known and _exists(folder / entry.output)
    ]
    bad_files = [file for file in before.bad_files if file.input not in known]
    outputs = sorted([*others, *new.outputs], key=lambda entry: entry.output)
    return new.replace(
        outputs=outputs,
        bad_files=[*bad_files, *new.bad_files],
        balance=sum_of([entry.balance for entry in outputs]),
        left_out=list(dict.fromkeys([*before.left_out, *new.left_out])),
    )
