"""Tar archives of a dataset -> its files, in one folder; nothing is written anywhere else.

Only plain files are taken, under their own names: links, devices and paths that lead elsewhere are refused
before the first file is written.
"""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from partt.atomic_files import atomic_path, refuse_foreign, remove_leftovers
from partt.data.files.access import check_signals
from partt.errors import DataError

BLOCK = 2**20  # bytes


def unpack(archive: Path, folder: Path, maker: str, *, overwrite: bool = False) -> dict[str, int]:
    """Write the files of an uncompressed tar archive to `folder`; return their names and sizes.

    A file that exists with the same contents is kept; others are replaced only with `overwrite`.
    """
    with _opened(archive) as tar:
        members = _checked_members(tar, archive)
        for name, member in members.items():
            target = folder / name
            remove_leftovers(target)
            if not _has_contents(target, tar, member):
                refuse_foreign(target, maker, lambda _: False, overwrite=overwrite)
                with atomic_path(target) as temporary, temporary.open("wb") as file:
                    for block in _contents(tar, member):
                        file.write(block)
    return {name: member.size for name, member in members.items()}


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive, "r:") as tar:  # not compressed: files are no larger than the archive
            yield tar
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise DataError(f"{archive}: not a tar archive that can be unpacked: {error}") from error


def _checked_members(tar: tarfile.TarFile, archive: Path) -> dict[str, tarfile.TarInfo]:
    """Return the files of an archive by name; raise an error for anything that is not a file of a dataset."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts or not path.name.isprintable():
            raise DataError(f"{archive}: {member.name!r} is a path that leads elsewhere; nothing is unpacked")
        if member.isdir():
            continue
        if not member.isreg() or member.issparse():
            raise DataError(f"{archive}: {member.name!r} is not a regular file; nothing is unpacked")
        if path.name in members:
            raise DataError(f"{archive}: {member.name!r} has the name of another file; nothing is unpacked")
        members[path.name] = member
    return members


def _has_contents(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    """Tell whether a file exists with the contents of a member."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size != member.size:
        return False
    with path.open("rb") as file:
        return all(block == file.read(len(block)) for block in _contents(tar, member))


def _contents(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    source = tar.extractfile(member)
    if source is None:
        raise DataError(f"{member.name!r} is not a file of the archive")
    with source:
        while block := source.read(BLOCK):
            check_signals(str(tar.name))
            yield block
