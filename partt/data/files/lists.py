"""File arguments as the field writes them, "name:glob", -> input files; globs on any URL."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partt.data.files.access import filesystem, is_remote, local_path, read_reporting
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

    An argument is a path, a URL or a glob, or "@list.txt": a file with one argument per line, in which
    paths are relative to the list. "name:" may stand before each; before a list it names the lines without.
    """
    files: list[InputFile] = []
    given_by: dict[str, str] = {}
    for argument, group, location, folder in _with_lists(arguments, "", Path(), ()):
        for url in _matches(argument, location, folder):
            key = url if is_remote(url) else os.path.realpath(url)
            if key in given_by:
                both = f"{given_by[key]!r} and by {argument!r}"
                raise DataError(f"{url} is given twice, by {both}; remove it from one of them")
            given_by[key] = argument
            files.append(InputFile(group, url))
    return tuple(files)


def _with_lists(
    arguments: Sequence[str], group_of_list: str, folder: Path, parents: tuple[Path, ...]
) -> Iterator[tuple[str, str, str, Path]]:
    """Yield argument, group, location and the folder of relative paths, lists replaced by their lines."""
    for argument in arguments:
        named = _NAMED.fullmatch(argument)
        group, location = (named["group"], named["location"]) if named else (group_of_list, argument)
        if not location.startswith("@"):
            yield argument, group, location, folder
            continue
        path = folder / local_path(location[1:])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DataError(f"{argument}: cannot read the list {path}: {error}") from error
        if path.resolve() in parents:
            raise DataError(f"{argument}: the list contains itself")
        lines = [line.strip() for line in text.splitlines()]
        wanted = [line for line in lines if line and not line.startswith("#")]
        if not wanted:
            raise DataError(f"{argument}: the list {path} names no files")
        yield from _with_lists(wanted, group, path.parent, (*parents, path.resolve()))


def _matches(argument: str, location: str, folder: Path) -> list[str]:
    def attempt() -> list[str]:
        return _remote_matches(location) if is_remote(location) else _local_matches(location, folder)

    matches = read_reporting(location, "the listing", attempt)
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
    fs, pattern = filesystem(location)
    matches = fs.glob(pattern)
    if not matches:
        fs.ls(re.split(r"[^/]*[*\[]", pattern)[0])  # glob keeps silent about a server that is gone
    return sorted(fs.unstrip_protocol(match) for match in matches)
