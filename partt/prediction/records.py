"""What an output says of itself, by which a rerun knows it, and predict.json, which speaks of all."""

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import partt
from partt.atomic_files import write_text
from partt.config import Record
from partt.data.files.access import is_remote, local_path, without_secrets
from partt.data.files.tables import read_note
from partt.errors import ConfigError, DataError
from partt.prediction.job import InputPlan, Options
from partt.prediction.outputs import alone
from partt.tagger.any_tagger import AnyTagger

NAME = "predict.json"


class Balance(Record):
    """Entries: those in = scored + not selected + bad."""

    entries: int = 0
    scored: int = 0
    not_selected: int = 0
    bad: int = 0

    def __add__(self, other: "Balance") -> "Balance":
        """Add up two balances."""
        return Balance(**{name: getattr(self, name) + getattr(other, name) for name in Balance.model_fields})

    @property
    def is_even(self) -> bool:
        """Whether every entry is accounted for."""
        return self.entries == self.scored + self.not_selected + self.bad


class Origin(Record):
    """All that decides the contents of an output."""

    format_version: int = 1
    input: str
    input_identity: str  # changes when the file changes
    tagger_sha256: str
    class_names: list[str]
    options: dict[str, Any]
    carried: list[str]  # observers, kept branches


class OutputRecord(Record):
    """The note inside an output: what it is made of, and where the entries of its input went."""

    origin: Origin
    balance: Balance
    rows: int


class OutputEntry(Record):
    """An output in predict.json."""

    output: str  # relative to the folder of predict.json
    input: str
    rows: int
    balance: Balance


class BadInput(Record):
    """An input without an output, in predict.json."""

    input: str
    reason: str


class Summary(Record):
    """predict.json."""

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
    left_out: list[str]  # columns that were asked for, and why they are not there


def origin_of(plan: InputPlan, tagger: AnyTagger, options: Options) -> Origin:
    """Return what decides the contents of a file's output."""
    url = plan.file.url
    return Origin(
        input=without_secrets(url) if is_remote(url) else os.path.realpath(local_path(url)),
        input_identity=plan.file.identity,
        tagger_sha256=tagger.sha256,
        class_names=list(tagger.class_names),
        options=options.describe(),
        carried=[*plan.observers, *plan.keep],
    )


def finished_output(path: Path, origin: Origin) -> OutputRecord | None:
    """Return the record of an output that is as it would be made now; None if it must be made.

    A file that is not the output of this input is never replaced.
    """
    if not path.exists():
        return None
    try:
        note = read_note(str(path))
        record = None if note is None else OutputRecord.model_validate_json(note)
    except (DataError, ValidationError):
        record = None
    if record is None:
        raise ConfigError(f"{path} is there already, and not made by partt predict; choose another --out")
    if record.origin.input != origin.input:
        raise ConfigError(
            f"{path} has the scores of {record.origin.input}, not of {origin.input}; choose another --out"
        )
    return record if record.origin == origin else None


def write_summary(folder: Path, new: Summary) -> Summary:
    """Write predict.json; outputs of other commands with the same tagger and options stay listed."""
    path = folder / NAME
    with alone(folder):
        try:
            before = Summary.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            before = None
        if before is not None and _settings(before) == _settings(new):
            new = _merged(folder, before, new)
        write_text(path, json.dumps(new.model_dump(mode="json"), indent=1) + "\n")
    return new


def versions(engine: str) -> dict[str, str]:
    """Return the versions of partt and of what its results stand on."""
    packages = (engine, "numpy", "uproot", "awkward")
    known = {"partt": partt.__version__, "python": platform.python_version()}
    return known | {package: version(package) for package in packages}


def _settings(summary: Summary) -> tuple[str, list[str], dict[str, Any]]:
    return summary.tagger_sha256, summary.class_names, summary.options


def _merged(folder: Path, before: Summary, new: Summary) -> Summary:
    known = {entry.input for entry in new.outputs} | {file.input for file in new.bad_files}
    others = [
        entry for entry in before.outputs if entry.input not in known and (folder / entry.output).exists()
    ]
    bad_files = [file for file in before.bad_files if file.input not in known]
    outputs = sorted([*others, *new.outputs], key=lambda entry: entry.output)
    return new.replace(
        outputs=outputs,
        bad_files=[*bad_files, *new.bad_files],
        balance=sum_of([entry.balance for entry in outputs]),
        left_out=list(dict.fromkeys([*before.left_out, *new.left_out])),
    )


def sum_of(balances: Sequence[Balance]) -> Balance:
    """Add up balances."""
    return sum(balances, Balance())
