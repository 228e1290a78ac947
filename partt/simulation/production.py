"""The files of a production, their seeds, and which of them are missing.

Every file has its own seed, made from the class, the split and the file's number. A file thus does not depend
on other files, on the number of workers, or on how many files are asked for: more jets later extend the set.
"""

import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Table, concatenate, num_jets
from partt.errors import ConfigError, ParttError
from partt.simulation.card import Detector
from partt.simulation.extras import EXTRAS
from partt.simulation.manifest import FileEntry, Manifest, file_hash, settings_of
from partt.simulation.pipeline import JetSelection, simulate_jets
from partt.simulation.processes import BY_LABEL, LABELS, has_mass_range, in_mass_range

MAX_JETS = 10**12
MAX_FILES = 10**6
MIN_MASS, MAX_MASS = 25.0, 500.0  # of a mass range, GeV
JETS_PER_TABLE = 1000  # per basket of the file: keeps memory flat

FileProgress: TypeAlias = Callable[[str, int], None]  # file name, jets made so far


@dataclass(frozen=True)
class Production:
    """What to make: `num_jets` of each class, in files of `jets_per_file`, divided between the splits."""

    out: Path
    num_jets: int
    labels: Sequence[str]
    jets_per_file: int
    splits: Mapping[str, float] | None  # folder -> fraction of the jets
    selection: JetSelection
    seed: int
    detector: Detector
    extras: Collection[str] = ()
    mass_range: tuple[float, float] | None = None  # GeV

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the contents of files."""
        return settings_of(
            self.seed,
            self.jets_per_file,
            self.selection.pt_min,
            self.selection.pt_max,
            self.detector.fingerprint,
            extras=self.extras,
            mass_range=self.mass_range,
        )


@dataclass(frozen=True)
class FileTask:
    """One file of a production."""

    name: str  # relative to the production's folder
    label: str
    num_jets: int
    spawn_key: tuple[int, ...]


def files_of(production: Production) -> list[FileTask]:
    """Return all files of a production, alternating between the classes."""
    _check(production)
    tasks = []
    for split, num_in_split in _jets_per_split(production).items():
        for label in production.labels:
            for number, first in enumerate(range(0, num_in_split, production.jets_per_file)):
                name = f"{BY_LABEL[label].file_prefix}_{number:03d}.root"
                tasks.append(
                    FileTask(
                        name=f"{split}/{name}" if split else name,
                        label=label,
                        num_jets=min(production.jets_per_file, num_in_split - first),
                        spawn_key=(LABELS.index(label), zlib.crc32(split.encode()), number),
                    )
                )
    return sorted(tasks, key=lambda task: task.spawn_key[2])


def make_file(production: Production, task: FileTask, progress: FileProgress | None = None) -> FileEntry:
    """Make one file; it gets its name when it is complete."""
    seed = np.random.SeedSequence(production.seed, spawn_key=task.spawn_key)
    process = BY_LABEL[task.label]
    if production.mass_range is not None:
        process = in_mass_range(process, production.mass_range)
    tables = simulate_jets(
        process, production.detector, production.selection, seed, task.num_jets, extras=production.extras
    )
    path = production.out / task.name
    write_table(path, _merged(_reporting(tables, task.name, progress)))
    return FileEntry(jets=task.num_jets, bytes=path.stat().st_size, sha256=file_hash(path))


def missing_files(production: Production, manifest: Manifest) -> list[FileTask]:
    """Return the files that are not complete; refuse to make fewer jets than the folder has."""
    tasks = files_of(production)
    wanted = {task.name: task for task in tasks}
    for name, entry in manifest.files.items():
        task = wanted.get(name)
        too_many = task is None and Path(name).name.startswith(
            tuple(f"{BY_LABEL[label].file_prefix}_" for label in production.labels)
        )
        if too_many or (task is not None and entry.jets > task.num_jets):
            raise ConfigError(
                f"{production.out} has more jets than this command asks for ({name}: {entry.jets}); "
                "give at least as many --jets as before and the same --split, or another --out"
            )
    missing = [task for task in tasks if not _is_complete(production.out, task, manifest)]
    for task in missing:
        if task.name not in manifest.files:
            _refuse_foreign(production.out / task.name, task)
    return missing


def _refuse_foreign(path: Path, task: FileTask) -> None:
    """Raise an error unless the file is missing, or one that a killed process made but did not list yet."""
    if not os.path.lexists(path):
        return
    if path.is_file() and not path.is_symlink():
        with suppress(ParttError):
            found = inspect_file(str(path))
            if f"label_{task.label}" in found.branches and found.num_entries <= task.num_jets:
                return
    raise ConfigError(
        f"{path} already exists and was not made by partt simulate; move it, or choose another --out"
    )


def _is_complete(out: Path, task: FileTask, manifest: Manifest) -> bool:
    entry, path = manifest.files.get(task.name), out / task.name
    if entry is None or entry.jets != task.num_jets or not path.is_file():
        return False
    return path.stat().st_size == entry.bytes and file_hash(path) == entry.sha256


def _check(production: Production) -> None:
    unknown = [label for label in production.labels if label not in BY_LABEL]
    if unknown or len(set(production.labels)) != len(production.labels):
        listed = ", ".join(production.labels)
        raise ConfigError(f"classes {listed}: give different ones of {', '.join(LABELS)}")
    if not (1 <= production.num_jets <= MAX_JETS and production.jets_per_file >= 1 and production.seed >= 0):
        raise ConfigError(f"numbers of jets must be from 1 to {MAX_JETS}, and the seed must not be negative")
    num_files = len(production.labels) * -(-production.num_jets // production.jets_per_file)
    if num_files > MAX_FILES:
        raise ConfigError(
            f"{production.num_jets} jets of each class are {num_files} files, more than {MAX_FILES}; give "
            "fewer --jets, or more --jets-per-file"
        )
    if not 0 < production.selection.pt_min < production.selection.pt_max:
        raise ConfigError("the pT range must be 0 < pt-min < pt-max")
    unknown = [name for name in production.extras if name not in EXTRAS]
    if unknown:
        raise ConfigError(f"extra {', '.join(unknown)}: give any of {', '.join(EXTRAS)}")
    if production.mass_range is not None:
        _check_mass_range(production.mass_range, production.labels)


def _check_mass_range(mass_range: tuple[float, float], labels: Sequence[str]) -> None:
    low, high = mass_range
    processes = [BY_LABEL[label] for label in labels if has_mass_range(BY_LABEL[label])]
    if not MIN_MASS <= low < high <= MAX_MASS:
        raise ConfigError(
            f"mass range {low:g}:{high:g}: should be two masses from {MIN_MASS:g} to {MAX_MASS:g} GeV, "
            "the lower one first"
        )
    if not processes:
        raise ConfigError(f"classes {', '.join(labels)}: a mass range is for classes of H, W and Z jets")
    lowest = max(process.lowest_mass for process in processes)
    if high <= lowest:
        raise ConfigError(f"mass range {low:g}:{high:g}: H -> WW needs masses above {lowest:g} GeV")


def _jets_per_split(production: Production) -> dict[str, int]:
    """Divide the jets by cumulative fractions, so that none is lost to rounding."""
    if production.splits is None:
        return {"": production.num_jets}
    fractions = np.array(list(production.splits.values()))
    if not (fractions > 0).all() or abs(fractions.sum() - 1) > 1e-6:
        text = ",".join(f"{name}={fraction:g}" for name, fraction in production.splits.items())
        raise ConfigError(f"split {text}: the fractions must be positive and add up to 1")
    for name in production.splits:
        if not name or name != os.path.basename(name) or name.startswith("."):  # noqa: PTH119
            raise ConfigError(f"split {name!r}: should be the name of a folder")
    edges = np.rint(np.concatenate([[0.0], np.cumsum(fractions)]) * production.num_jets).astype(int)
    return dict(zip(production.splits, np.diff(edges).tolist(), strict=True))


def _reporting(tables: Iterator[Table], name: str, progress: FileProgress | None) -> Iterator[Table]:
    done = 0
    for table in tables:
        yield table
        done += num_jets(table)
        if progress is not None:
            progress(name, done)


def _merged(tables: Iterator[Table]) -> Iterator[Table]:
    """Merge small tables into tables of at least JETS_PER_TABLE jets."""
    waiting: list[Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(num_jets, waiting)) >= JETS_PER_TABLE:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(tables: Sequence[Table]) -> Table:
    return {name: concatenate([table[name] for table in tables]) for name in tables[0]}
