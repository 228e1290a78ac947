"""Paths of the outputs of each input, and the lock of predict.json."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from partt.data.files.access import is_remote, local_path
from partt.errors import ConfigError
from partt.jobs.folder_lock import opened_folder, wait_for_lock

SUFFIXES = {"root": ".root", "parquet": ".parquet"}
LOCK = ".predict.lock"


def is_file_name(out: Path) -> bool:
    """Return whether an output is a file by its suffix, not a folder."""
    return out.suffix in {*SUFFIXES.values(), ".pq"}


def output_paths(urls: Sequence[str], out: Path, suffix: str) -> list[Path]:
    """Return the output of each input: `out` itself if it is a file, else a file of the same name in it.

    Inputs of the same name keep the folders in which they differ.
    """
    if is_file_name(out):
        if len(urls) > 1:
            raise ConfigError(f"--out {out} is one file, but there are {len(urls)} inputs; give a folder")
        paths = [out]
    else:
        names = [_parts(url)[-1:] for url in urls]
        if len(set(names)) < len(names):
            names = _without_common_parents([_parts(url) for url in urls])
        paths = [(out / Path(*name)).with_suffix(suffix) for name in names]
    counts = Counter(paths)
    inputs = {os.path.realpath(local_path(url)): url for url in urls if not is_remote(url)}
    for path in paths:
        if os.path.realpath(path) in inputs:
            raise ConfigError(f"the scores would replace the input {path}; choose another --out")
        if counts[path] > 1:
            raise ConfigError(
                f"two inputs would have the same output, {path}; predict them separately, to different --out"
            )
    return paths


def _parts(url: str) -> tuple[str, ...]:
    """Return the folders and the name of an input; of a URL also the host, but not the query."""
    path = url.partition("://")[2].partition("?")[0] if is_remote(url) else os.path.realpath(local_path(url))
    return tuple(part for part in path.split("/") if part not in {"", ".", ".."})


def _without_common_parents(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    shortest = min(len(path) for path in paths) - 1
    depth = next((i for i in range(shortest) if len({path[i] for path in paths}) > 1), shortest)
    return [path[depth:] for path in paths]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is inside such a block, and keep others out of theirs."""
    with opened_folder(folder, LOCK) as descriptor:
        wait_for_lock(descriptor, folder)
        yield
