"""Where the scores of each input go, and who may write there."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from partt.atomic_files import opened_folder, remove_leftovers
from partt.data.files.access import is_remote, local_path
from partt.errors import ConfigError, OutputError

SUFFIXES = {"root": ".root", "parquet": ".parquet"}
LOCK = ".predict.lock"


def is_file_name(out: Path) -> bool:
    """Tell whether an output is named as a file, not as a folder."""
    return out.suffix in {*SUFFIXES.values(), ".pq"}


def output_paths(urls: Sequence[str], out: Path, suffix: str) -> list[Path]:
    """Return where the scores of each input go: `out` itself, or files in it that are called like the inputs.

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
    inputs = {os.path.realpath(local_path(url)): url for url in urls if not is_remote(url)}
    for path in paths:
        if os.path.realpath(path) in inputs:
            raise ConfigError(f"the scores would replace the input {path}; choose another --out")
        if paths.count(path) > 1:
            raise ConfigError(f"two inputs would have the output {path}; predict them with different --out")
    return paths


def _parts(url: str) -> tuple[str, ...]:
    """Return folders and name of an input; of a URL the host too, without its query."""
    path = url.partition("://")[2].partition("?")[0] if is_remote(url) else os.path.realpath(local_path(url))
    return tuple(part for part in path.split("/") if part not in {"", ".", ".."})


def _without_common_parents(paths: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    shortest = min(len(path) for path in paths) - 1
    depth = next((i for i in range(shortest) if len({path[i] for path in paths}) > 1), shortest)
    return [path[depth:] for path in paths]


@contextmanager
def writing_to(folder: Path, paths: Sequence[Path]) -> Iterator[None]:
    """Make the folder, and remove what a killed process left of the outputs, unless another one is at work.

    Several processes may write to a folder, each its own outputs.
    """
    with opened_folder(folder) as descriptor:
        with suppress(OSError):  # locked by another process, or a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in paths:
                remove_leftovers(path)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out for a moment."""
    try:
        with (folder / LOCK).open("a", encoding="utf-8") as lock:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
