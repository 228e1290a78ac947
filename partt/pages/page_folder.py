"""A folder with a page, its numbers and its figures: written as a whole, and recognised when it is replaced.

A JSON file of the folder lists all others with their SHA-256. Files that it does not list, or that were
changed since, are replaced only on request.
"""

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from partt import __version__
from partt.atomic_files import refuse_foreign, write_text
from partt.errors import DataError, without_secrets
from partt.regular_files import MAX_BYTES, read_bounded, read_json


@dataclass(frozen=True)
class PageFolder:
    """Who writes a folder, and the JSON file that lists what is in it."""

    maker: str  # like "partt evaluate"
    listing: str

    def refuse_foreign_files(self, folder: Path, names: Sequence[str], *, overwrite: bool) -> None:
        """Raise an error if one of the files exists and is not of an earlier page."""
        try:
            listed = read_json(folder / self.listing)["about"]["files"]
            known = dict(listed) if not (folder / self.listing).is_symlink() else {}
        except (DataError, OSError, ValueError, LookupError, TypeError):
            known = {}

        def is_ours(path: Path) -> bool:
            name = path.relative_to(folder).as_posix()
            return bool(known) if name == self.listing else known.get(name) == _sha256(path)

        for name in names:
            refuse_foreign(folder / name, self.maker, is_ours, overwrite=overwrite)


def files_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of all files of a folder, by their paths in it."""
    return {
        path.relative_to(folder).as_posix(): _sha256(path) for path in folder.rglob("*") if path.is_file()
    }


def about_page(command: str, versions_of: Sequence[str]) -> dict[str, Any]:
    """Return when and how a page was made, with the versions of some libraries."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": without_secrets(command),
        "versions": {
            "partt": __version__,
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in versions_of},
        },
    }


def render_page(package: str, template: str, values: Mapping[str, Any]) -> str:
    """Return the page of a template in the folder `page` of a package; all values are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package, "page"), jinja2.PackageLoader("partt.pages", "shared")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(template).render(values)


def write_any_text(path: Path, text: str) -> None:
    """Write text; what UTF-8 cannot express (file names may have any bytes) becomes an escape."""
    write_text(path, text.encode("utf-8", "backslashreplace").decode())


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bounded(path, MAX_BYTES)).hexdigest()
