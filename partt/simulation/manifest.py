"""simulation.json: settings and files of a folder, so that a rerun continues and settings never mix."""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from partt.atomic_files import write_text
from partt.config import Record
from partt.errors import ConfigError, DataError, OutputError
from partt.jobs.folder_lock import opened_folder, try_lock
from partt.regular_files import MAX_BYTES, read_bounded

NAME = "simulation.json"
GENERATION = 2  # of the simulation's code: raised when the same seed gives different jets


class FileEntry(Record):
    """A complete file."""

    jets: int
    bytes: int
    sha256: str


class Manifest(Record):
    """The settings that all files of a folder share, and the files."""

    settings: dict[str, Any]
    files: dict[str, FileEntry] = Field(default_factory=dict)

    def with_file(self, name: str, entry: FileEntry) -> "Manifest":
        """Return this manifest with one more file."""
        return self.model_copy(update={"files": {**self.files, name: entry}})


def settings_of(
    seed: int,
    jets_per_file: int,
    pt_min: float,
    pt_max: float,
    card_fingerprint: str,
    *,
    extras: Collection[str] = (),
    mass_range: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Return everything that decides the contents of files, named as on the command line.

    Options that are not given are left out, as in folders made before there were such options.
    """
    options: dict[str, Any] = {}
    if extras:
        options["--extra"] = " ".join(sorted(set(extras)))
    if mass_range is not None:
        options["--mass-range"] = "{:g}:{:g}".format(*mass_range)
    return {
        "--seed": seed,
        "--jets-per-file": jets_per_file,
        "--pt-min": pt_min,
        "--pt-max": pt_max,
        "--card (sha256)": card_fingerprint,
        **options,
        "generation": GENERATION,
        "pythia8mc": version("pythia8mc"),
        "fastjet": version("fastjet"),
    }


def open_manifest(out: Path, settings: dict[str, Any], names: list[str]) -> Manifest:
    """Read the manifest of a folder, or start one; `names` are the files of the production.

    Refused: a folder made with different settings, files with these names but no manifest, and links.
    """
    path = out / NAME
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, which partt does not write to: choose another --out")
    if not path.exists():
        foreign = next((name for name in names if os.path.lexists(out / name)), None)
        if foreign is not None:
            raise ConfigError(f"{out / foreign} already exists, but {NAME} does not: choose another --out")
        manifest = Manifest(settings=settings)
        save_manifest(out, manifest)
        return manifest
    try:
        manifest = Manifest.model_validate_json(read_bounded(path, MAX_BYTES))
    except ValidationError as error:
        raise DataError(f"{path} is damaged: remove the folder, or choose another --out") from error
    different = [
        f"{key}: {manifest.settings.get(key, 'not given')} there, {settings.get(key, 'not given')} here"
        for key in {**settings, **manifest.settings}
        if manifest.settings.get(key) != settings.get(key)
    ]
    if different:
        raise ConfigError(
            f"{out} was made with different settings; use the same settings, or another --out:\n  "
            + "\n  ".join(different)
        )
    return manifest


def save_manifest(out: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    write_text(out / NAME, json.dumps(manifest.model_dump(), indent=1) + "\n")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep a second run out of the folder."""
    with opened_folder(out) as descriptor:
        if not try_lock(descriptor, if_unsupported=True):
            raise OutputError(f"another `partt simulate` is writing to {out}")
        yield
