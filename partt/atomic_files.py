"""Atomic writes: a file with its final name is complete. All outputs of partt are written this way.

Contents go to a temporary file in the same folder, which is flushed to disk, then renamed.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from partt.errors import OutputError


@contextmanager
def atomic_path(final: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes `final` if the block ends without an error.

    Missing parent folders are made. The temporary name keeps the suffix, since some writers choose their
    format by it. An OSError inside the block is raised as an OutputError that names `final`.
    """
    final = Path(final)
    temporary = final.with_name(f".{final.stem}.{secrets.token_hex(4)}.tmp{final.suffix}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush_to_disk(temporary)
        temporary.replace(final)
        _flush_to_disk(final.parent)
    except OSError as error:
        raise OutputError(f"cannot write {final}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text(final: str | Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_path(final) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove_leftovers(final: str | Path) -> None:
    """Remove temporary files of `final` left by killed processes; no process may be writing it."""
    final = Path(final)
    for temporary in final.parent.glob(f".{escape(final.stem)}.*.tmp{final.suffix}"):
        with suppress(OSError):
            temporary.unlink()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
