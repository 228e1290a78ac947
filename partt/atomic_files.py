"""Atomic writes: a file with its final name is complete. All outputs of partt are written this way.

Contents go to a temporary file in the same folder, which is flushed to disk, then renamed. A link is replaced
by the rename, never followed. Files that partt did not make are replaced only with --overwrite.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from partt.errors import ConfigError, OutputError


@contextmanager
def atomic_path(final: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `final` if the block ends without an error.

    Missing parent folders are made. The temporary name keeps the suffix, since some writers choose their
    format by it. An OSError inside the block is raised as an OutputError that names `final`.
    """
    final = Path(final)
    temporary = _temporary(final)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        give_final_name(temporary, final)
    except OSError as error:
        raise OutputError(f"cannot write {final}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def give_final_name(temporary: Path, final: Path) -> None:
    """Flush a complete file to disk, and rename it."""
    _flush_to_disk(temporary)
    temporary.replace(final)
    _flush_to_disk(final.parent)


@contextmanager
def staged_files(folder: Path, name: str, first: str) -> Iterator[Path]:
    """Yield a temporary folder; if the block ends without an error, its files move to `folder`.

    So either all files are replaced, or none. `first` is moved first. `name` is that of the temporary folder,
    for `remove_leftovers`.
    """
    stage = _temporary(folder / name)
    try:
        stage.mkdir(parents=True)
        yield stage
        files = sorted(path.relative_to(stage) for path in stage.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path != Path(first)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (stage / path).replace(folder / path)
        _flush_to_disk(folder)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def write_text(final: str | Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_path(final) as temporary:
        temporary.write_text(text, encoding="utf-8")


def refuse_foreign(
    path: str | Path, maker: str, is_ours: Callable[[Path], bool], *, overwrite: bool = False
) -> None:
    """Raise an error if a file exists that partt may not replace.

    It may replace what `is_ours` recognises as made by `maker` (such as "partt export"), and with `overwrite`
    any file or link, but no folder. `is_ours` is called for regular files only; its errors mean False.
    """
    path = Path(path)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    if S_ISDIR(mode):
        raise ConfigError(f"{path} is a folder; choose another --out")
    if overwrite:
        return
    if S_ISREG(mode):
        with suppress(Exception):  # a file of any contents can make its reader raise anything
            if is_ours(path):
                return
    raise ConfigError(
        f"{path} already exists and was not made by {maker}, or was changed since; choose another --out, or "
        "replace it with --overwrite"
    )


def remove_leftovers(final: str | Path) -> None:
    """Remove temporary files of `final` left by killed processes; no process may be writing it."""
    final = Path(final)
    for temporary in final.parent.glob(f".{escape(final.stem)}.*.tmp{escape(final.suffix)}"):
        with suppress(OSError):
            if temporary.is_dir() and not temporary.is_symlink():
                shutil.rmtree(temporary)
            else:
                temporary.unlink()


def _temporary(final: Path) -> Path:
    return final.with_name(f".{final.stem}.{secrets.token_hex(4)}.tmp{final.suffix}")


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
