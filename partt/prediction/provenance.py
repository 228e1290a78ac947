"""Provenance of outputs; decides what a rerun keeps."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from partt.config import Record
from partt.data.files.access import is_remote, local_path, without_secrets
from partt.data.files.tables import read_note
from partt.errors import ConfigError, DataError
from partt.prediction.opened_files import OpenedFile
from partt.prediction.options import Options
from partt.tagger.tagger import Tagger


class Balance(Record):
    """Where the entries of inputs went: entries = scored + not selected + bad."""

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


def sum_of(balances: Sequence[Balance]) -> Balance:
    """Add up balances."""
    return sum(balances, Balance())


class Origin(Record):
    """Everything that determines the contents of an output."""

    format_version: int = 1
    input: str
    input_identity: str  # changes when the file changes
    tagger_sha256: str
    class_names: list[str]
    options: dict[str, Any]
    carried: list[str]  # observers, kept branches


class Provenance(Record):
    """The note inside an output: its origin, and where the entries of its input went."""

    origin: Origin
    balance: Balance
    rows: int


def origin_of(file: OpenedFile, tagger: Tagger, options: Options) -> Origin:
    """Return the origin that the output of a file has if it is made now."""
    url = file.info.url
    return Origin(
        input=without_secrets(url) if is_remote(url) else os.path.realpath(local_path(url)),
        input_identity=file.info.identity,
        tagger_sha256=tagger.sha256,
        class_names=list(tagger.class_names),
        options=options.describe(),
        carried=[*file.observers, *file.keep],
    )


def finished_output(path: Path, origin: Origin) -> Provenance | None:
    """Return the provenance of an output that can be kept; None if it must be made.

    A file that is not an output of the same input is never replaced.
    """
    if not path.exists():
        return None
    try:
        note = read_note(str(path))
        provenance = None if note is None else Provenance.model_validate_json(note)
    except (DataError, ValidationError):
        provenance = None
    if provenance is None:
        raise ConfigError(
            f"{path} already exists and is not an output of partt predict; choose another --out"
        )
    if provenance.origin.input != origin.input:
        raise ConfigError(
            f"{path} has the scores of {provenance.origin.input}, not of {origin.input}; choose another --out"
        )
    return provenance if provenance.origin == origin else None
