"""`partt download` as a function: files of a public dataset, resumed, verified, then named or unpacked."""

import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from partt.atomic_files import give_final_name, refuse_foreign
from partt.data.files.access import check_signals
from partt.downloading.download_json import UnpackedArchive, read_archives, write_archives
from partt.downloading.public_datasets import PublicDataset, PublicFile, load_public_dataset
from partt.downloading.transfer import RERUN, announced_size, fetch, file_checksum
from partt.downloading.unpacking import unpack
from partt.errors import OutputError
from partt.jobs.folder_lock import opened_folder, wait_for_lock
from partt.jobs.notebook_bar import notebook_progress
from partt.jobs.progress import Progress
from partt.jobs.stop_signals import SignalledError

MAKER = "partt download"


@dataclass(frozen=True)
class DownloadResult:
    """What was fetched, and the command that goes on from there."""

    folder: Path
    files_fetched: int
    files_kept: int  # complete before
    bytes_fetched: int
    next_command: str


def download(
    dataset: str,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress | None = None,
) -> DownloadResult:
    """Download a public dataset to the folder `out`.

    `dataset` is "jetclass", "top_landscape", "quark_gluon" or the path of a YAML list of files; `only` takes
    parts ("test") and names or globs of files. A file gets its name when its checksum is that of the list;
    until then it is NAME.partial, which the same call continues. Archives are unpacked, then removed.
    Complete files are kept; files that are not those of the dataset are replaced only with `overwrite`.
    `progress` takes megabytes.
    """
    listed = load_public_dataset(dataset)
    files = listed.chosen(only)
    out = Path(out)
    with _resumable(out), opened_folder(out) as descriptor:
        wait_for_lock(descriptor, out)
        archives = read_archives(out, MAKER)
        missing = [file for file in files if not _is_complete(file, out, archives)]
        for file in missing:
            if file.unpack_to is None:
                refuse_foreign(out / file.name, MAKER, lambda _: False, overwrite=overwrite)
        sizes = {file: file.size or announced_size(listed.url(file)) for file in missing}
        arrived = {file: _size(_partial(out, file)) for file in missing}
        _require_space(out, sizes, arrived)
        before = sum(arrived.values())
        show = _shown(arrived, sizes, progress or notebook_progress("downloading", "MB"))
        for file in missing:
            check_signals(listed.url(file))
            temporary = _partial(out, file)
            fetch(listed.url(file), temporary, sizes[file], file.checksum, partial(show, file))
            if file.unpack_to is None:
                give_final_name(temporary, out / file.name)
            else:
                unpacked = unpack(temporary, out / file.unpack_to, MAKER, overwrite=overwrite)
                paths = {f"{file.unpack_to}/{name}": size for name, size in unpacked.items()}
                archives[file.name] = UnpackedArchive(checksum=file.checksum, files=paths)
                write_archives(out, MAKER, archives)
                temporary.unlink()
    num_bytes = sum(arrived.values()) - before
    next_command = _next_command(listed, files, out)
    return DownloadResult(out, len(missing), len(files) - len(missing), num_bytes, next_command)


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Say after a signal that the same command continues; errors of the disk become an OutputError."""
    try:
        yield
    except SignalledError as error:
        raise SignalledError(f"stopped by a signal; {RERUN}") from error
    except OSError as error:
        raise OutputError(f"cannot write to {out}: {error.strerror or error}") from error


def _partial(out: Path, file: PublicFile) -> Path:
    return out / f"{file.name}.partial"


def _is_complete(file: PublicFile, out: Path, archives: Mapping[str, UnpackedArchive]) -> bool:
    """Tell whether a file has its name and its checksum, or was unpacked and all is still there."""
    if file.unpack_to is None:
        path = out / file.name
        is_file = path.is_file() and not path.is_symlink()
        return is_file and file_checksum(path, file.checksum) == file.checksum
    archive = archives.get(file.name)
    if archive is None or archive.checksum != file.checksum:
        return False
    return all(_size(out / name) == size for name, size in archive.files.items())


def _size(path: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    return path.stat().st_size if path.is_file() else 0


def _require_space(
    out: Path, sizes: Mapping[PublicFile, int | None], arrived: Mapping[PublicFile, int]
) -> None:
    """Raise an error if the disk is too small: for all files, and for one archive beside its contents."""
    largest = max((size or 0 for file, size in sizes.items() if file.unpack_to), default=0)
    needed = sum(size or 0 for size in sizes.values()) - sum(arrived.values()) + largest
    free = shutil.disk_usage(out).free
    if needed > free:
        raise OutputError(
            f"{out}: the download needs {needed / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free; ask for "
            "less with --only, or choose another --out"
        )


def _shown(
    arrived: dict[PublicFile, int], sizes: Mapping[PublicFile, int | None], progress: Progress
) -> Callable[[PublicFile, int], None]:
    """Return a callback that notes how much of a file has arrived, and shows the sum."""
    total = sum(size or 0 for size in sizes.values())

    def show(file: PublicFile, size: int) -> None:
        arrived[file] = size
        progress(sum(arrived.values()) // 10**6, total // 10**6)

    return show


def _next_command(dataset: PublicDataset, files: Sequence[PublicFile], out: Path) -> str:
    """Return the command that converts the files, or that checks them if they can be read as they are."""
    if dataset.convert is not None:
        names = [str(out / file.name) for file in files]
        return shlex.join(["partt", "convert", dataset.convert, *names, "--out", str(out / "root")])
    folders = dict.fromkeys(out / file.unpack_to if file.unpack_to else out for file in files)
    globs = [str(folder / "*.root") for folder in folders]
    return shlex.join(["partt", "check", dataset.data_config, *globs])
