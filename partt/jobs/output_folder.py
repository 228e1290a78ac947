"""Folders that several processes may write to, each its own outputs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from partt.atomic_files import remove_leftovers
from partt.jobs.folder_lock import opened_folder, try_lock, wait_for_lock


@contextmanager
def writing_to(folder: Path, paths: Sequence[Path]) -> Iterator[None]:
    """Make the folder; remove temporary files of the outputs unless another process is writing to it."""
    with opened_folder(folder) as descriptor:
        if try_lock(descriptor, if_unsupported=False):
            for path in paths:
                remove_leftovers(path)
        wait_for_lock(descriptor, folder, shared=True)
        yield
