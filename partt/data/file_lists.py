"""File arguments as the field writes them, "name:glob", -> input files; globs on any URL."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partt.data.file_access import filesystem, is_remote, local_path, read_reporting
from partt.errors import DataError

# A name ends at the first colon, unless that colon belongs to a URL: "root://", "simplecache::root://".
_NAMED = re.compile(r"(?P<group>[^:/\\@*?\[\]]+):(?!//|:)(?P<location>.+)", re.DOTALL)


@dataclass(frozen=True)
class InputFile:
    """One file to read, and the group (usually a process) it was given under."""

    group: str
    url: str


def expand_files(arguments: Sequence[str]) -> tuple[InputFile, ...]:
    """Return the files that arguments stand for: in the order of the arguments, sorted inside each.

    An argument is a path, a URL or a glob, with or without "name:" before it, or "@list.txt": a file with
    one argument per line, in which paths are relative to the list.
    """
    files: list[InputFile] = []
    given_by: dict[str, str] = {}
    for argument, folder in _with_lists(arguments, Path(), ()):
        group, location = _split_group(argument)
        for url in _matches(argument, location, folder):
            key = url if is_remote(url) else os.path.realpath(url)
            if key in given_by:
                both = f"{given_by[key]!r} and by {argument!r}"
                raise DataError(f"{url} is given twice, by {both}; remove it from one of them")
            given_by[key] = argument
            files.append(InputFile(group, url))
    return tuple(files)


def _with_lists(
    arguments: Sequence[str], folder: Path, parents: tuple[Path, ...]
) -> Iterator[tuple[str, Path]]:
    """Yield each argument with the folder its relative paths start from, lists replaced by their lines."""
    for argument in arguments:
        if not argument.startswith("@"):
            yield argument, folder
            continue
        path = folder / Path(argument[1:]).expanduser()
        if path.resolve() in parents:
            raise DataError(f"{argument}: the list contains itself")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{argument}: cannot read the list {path}: {error}") from error
        lines = [line.strip() for line in text.splitlines()]
        wanted = [line for line in lines if line and not line.startswith("#")]
        if not wanted:
            raise DataError(f"{argument}: the list {path} names no files")
        yield from _with_lists(wanted, path.parent, (*parents, path.resolve()))


def _split_group(argument: str) -> tuple[str, str]:
    named = _NAMED.fullmatch(argument)
    return (named["group"], named["location"]) if named else ("", argument)


def _matches(argument: str, location: str, folder: Path) -> list[str]:
    matches = _remote_matches(location) if is_remote(location) else _local_matches(location, folder)
    if not matches:
        raise DataError(f"{argument!r} matches no file; check the path (quote globs in the shell)")
    return matches


def _local_matches(location: str, folder: Path) -> list[str]:
    path = str(folder / local_path(location))
    if Path(path).is_dir():
        raise DataError(f"{location!r} is a folder; give its files: {location.rstrip('/')}/*.root")
    if Path(path).exists():
        return [path]
    return sorted(match for match in glob.glob(path, recursive=True) if Path(match).is_file())  # noqa: PTH207


def _remote_matches(location: str) -> list[str]:
    """Return the URLs a glob matches; a URL without a glob is taken as it is, without asking the server."""
    protocol, _, rest = location.partition("://")
    path = rest.partition("/")[2]
    if location.endswith("/"):
        raise DataError(f"{location!r} is a folder; give its files: {location}*.root")
    if not any(sign in path for sign in "*["):  # "?" starts the query of a URL
        return [location]
    if protocol in {"http", "https"}:
        raise DataError(
            f"{location!r}: a {protocol} server cannot list files; give each URL, for example in an @list.txt"
        )

    def attempt() -> list[str]:
        fs, pattern = filesystem(location)
        matches = fs.glob(pattern)
        if not matches:
            fs.ls(re.split(r"[^/]*[*\[]", pattern)[0])  # glob keeps silent about a server that is gone
        return sorted(fs.unstrip_protocol(match) for match in matches)

    return read_reporting(location, "the listing", attempt)
