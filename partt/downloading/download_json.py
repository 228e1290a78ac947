"""download.json: which archives were unpacked, and what was in them; the archives themselves are removed."""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from partt.atomic_files import write_text
from partt.config import Record
from partt.errors import ConfigError
from partt.regular_files import read_bounded

NAME = "download.json"
MAX_BYTES = 100_000_000


class UnpackedArchive(Record):
    """An archive that was unpacked."""

    checksum: str
    files: dict[str, int]  # path in the folder -> bytes


class _Summary(Record):
    made_by: str
    archives: dict[str, UnpackedArchive]


def read_archives(folder: Path, maker: str) -> dict[str, UnpackedArchive]:
    """Return the archives that were unpacked in a folder."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        summary = _Summary.model_validate_json(read_bounded(path, MAX_BYTES, error_type=ConfigError))
    except ValidationError as error:
        raise ConfigError(f"{path} was not made by {maker}; choose another --out") from error
    return dict(summary.archives)


def write_archives(folder: Path, maker: str, archives: Mapping[str, UnpackedArchive]) -> None:
    """Write which archives were unpacked."""
    summary = _Summary(made_by=maker, archives=dict(archives))
    write_text(folder / NAME, json.dumps(summary.model_dump(), indent=1) + "\n")
