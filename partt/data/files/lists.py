"""File arguments (NAME:GLOB, FILE.root:TREE, @LIST, URL) -> input files."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from partt.data.files.access import filesystem, is_remote, local_path, with_retries
from partt.errors import DataError, is_utf8
from partt.regular_files import require_regular

MAX_LIST_BYTES = 100_000_000

# A name ends at the first colon, unless that colon belongs to a URL: "root://", "simplecache::root://".
_NAMED = re.compile(r"(?P<sample>[^:/\\@*?\[\]]+):(?!//|:)(?P<location>.+)", re.DOTALL)


_WITH_TREE = re.compile(r"(?P<location>.+\.root):(?P<tree>[^:*?\[\]]+)", re.DOTALL)


@dataclass(frozen=True)
class InputFile:
    """One file to read, and the sample (NAME in NAME:GLOB, usually a process) that it belongs to."""

    sample: str  # "" without a NAME
    url: str
    tree: str | None = None  # None: not named


def expand_files(arguments: Sequence[str], tree: str | None = None) -> tuple[InputFile, ...]:
    """Return the files that the arguments match: in the order of the arguments, sorted within each.

    An argument is a path, a URL or a glob, or "@list.txt": a file with one argument per line, in which
    paths are relative to the list. Each may start with "NAME:"; that of a list applies to lines without one.
    Each may end in ":TREE" after ".root"; `tree` is that of all others.
    """
    files: list[InputFile] = []
    given_by: dict[str, str] = {}
    for argument, sample, location, folder in _with_lists(arguments, "", Path(), ()):
        location, own_tree = _split_tree(location, folder)  # noqa: PLW2901
        for url in _matches(argument, location, folder):
            key = url if is_remote(url) else os.path.realpath(url)
            if key in given_by:
                both = f"{given_by[key]!r} and by {argument!r}"
                raise DataError(f"{url} is given twice, by {both}; remove it from one of them")
            if not is_utf8(url):
                raise DataError(f"{url!r}: the name is not valid UTF-8; rename the file")
            given_by[key] = argument
            files.append(InputFile(sample, url, own_tree or tree))
    return tuple(files)


def _split_tree(location: str, folder: Path) -> tuple[str, str | None]:
    """Split FILE.root:TREE, unless there is a file of that name."""
    named = _WITH_TREE.fullmatch(location)
    if named is None or (not is_remote(location) and os.path.exists(folder / local_path(location))):  # noqa: PTH110 - Path.exists raises where a name is too long
        return location, None
    return named["location"], named["tree"]


def _with_lists(
    arguments: Sequence[str], sample_of_list: str, folder: Path, parents: tuple[Path, ...]
) -> Iterator[tuple[str, str, str, Path]]:
    """Yield argument, sample, location and the folder of relative paths, lists replaced by their lines."""
    for argument in arguments:
        named = _NAMED.fullmatch(argument)
        if named and named["sample"].endswith(".root"):  # FILE.root:TREE
            named = None
        sample, location = (named["sample"], named["location"]) if named else (sample_of_list, argument)
        if not location.startswith("@"):
            yield argument, sample, location, folder
            continue
        path = folder / local_path(location[1:])
        require_regular(path, max_bytes=MAX_LIST_BYTES)
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
        yield from _with_lists(wanted, sample, path.parent, (*parents, path.resolve()))


def _matches(argument: str, location: str, folder: Path) -> list[str]:
    def attempt() -> list[str]:
        return _remote_matches(location) if is_remote(location) else _local_matches(location, folder)

    matches = with_retries(location, "the listing", attempt)
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
    """Return the URLs that a glob matches; a URL without a glob is returned without asking the server."""
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
        fs.ls(re.split(r"[^/]*[*\[]", pattern)[0])  # glob does not report a server that is down; ls does
    return sorted(fs.unstrip_protocol(match) for match in matches)
