"""Files + data config -> a JetSource that can be read, and an index of its jets for the read plan."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from partt.data.config.data_config import DataConfig
from partt.data.files.lists import InputFile
from partt.data.files.tables import MAX_CHUNK, AuthenticationError, FileInfo, inspect_file
from partt.data.jagged import Array
from partt.data.jet_batch import JetBatch
from partt.data.packing import pack
from partt.data.reading.batch_cache import cache_folder, chunk_path, load_batch, save_batch
from partt.data.reading.read_plan import Chunk
from partt.data.reading.splitting import Split
from partt.data.reweighting import fit_reweighting, reweight
from partt.data.standardization import fit_standardization
from partt.data.variables import (
    Purpose,
    Variables,
    labels_of,
    missing_branches,
    names_for,
    read_variables,
    require_branches,
    scan,
    select,
    weights_of,
)
from partt.errors import DataError

Progress = Callable[[int, int], None]  # files done, files in total
PURE = 0.9  # a chunk with a larger part of one class has to be mixed with those of other classes


@dataclass(frozen=True)
class BadFile:
    """A file that is left out, and why."""

    url: str
    reason: str


@dataclass(frozen=True)
class BadFilePolicy:
    """What to do with files that cannot be read: stop, or skip some and list them."""

    skip: bool = False
    max_fraction: float = 0.05

    def check(self, num_files: int, bad: Sequence[BadFile]) -> None:
        """Raise an error if too many files are bad."""
        if len(bad) > self.max_fraction * num_files:
            raise DataError(
                f"{len(bad)} of {num_files} files are bad, more than --max-bad-fraction "
                f"{self.max_fraction:g} allows:\n{listing(bad)}"
            )


def listing(bad: Sequence[BadFile]) -> str:
    """List bad files, one a line."""
    return "\n".join(f"  {file.reason}" for file in bad[:20])


@dataclass(frozen=True)
class JetSource:
    """The jets of some files as a config reads them: all that another process needs to read them."""

    files: tuple[FileInfo, ...]
    groups: tuple[str, ...]  # the name that each file was given with
    config: DataConfig
    purpose: Purpose
    reweighting: Literal["sample", "loss"] = "sample"
    on_bad_jet: Literal["error", "mark"] = "error"
    on_bad_file: BadFilePolicy = BadFilePolicy()
    cache: Path | None = None  # the folder that belongs to this config and purpose
    bad_files: tuple[BadFile, ...] = ()  # those that could not even be opened
    split: Split | None = None  # the part of the entries to use; None: all

    @property
    def samples(self) -> bool:
        """Whether weights decide how often a jet is used, instead of weighting the loss."""
        weights = self.config.weights
        fitted = weights is not None and not weights.use_precomputed_weights
        return self.purpose == "train" and self.reweighting == "sample" and fitted


@dataclass(frozen=True)
class JetIndex:
    """What the read plan has to know of the files, and what is worth telling of them."""

    chunks: tuple[Chunk, ...]
    class_counts: npt.NDArray[np.int64]  # (files, classes) selected jets; zero in prediction
    mean_weight: float  # of the selected jets
    bad_files: tuple[BadFile, ...] = ()  # those that were left out so far

    @property
    def num_jets(self) -> int:
        """Selected jets of all files."""
        return sum(chunk.num_jets for chunk in self.chunks)


def open_source(
    inputs: Sequence[InputFile],
    config: DataConfig,
    purpose: Purpose,
    *,
    reweighting: Literal["sample", "loss"] = "sample",
    on_bad_jet: Literal["error", "mark"] = "error",
    on_bad_file: Literal["error", "skip"] = "error",
    max_bad_fraction: float = 0.05,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> JetSource:
    """Open all files, see that they have what the config needs, and fit what the config leaves open.

    With on_bad_file="skip", broken files are left out and listed, up to `max_bad_fraction` of the files and
    as long as each group keeps one. Files that may not be read for want of rights are never skipped.
    """
    policy = BadFilePolicy(on_bad_file == "skip", max_bad_fraction)
    good, bad = open_files(inputs, config, names_for(config, purpose), policy, progress=progress)
    check_losses(inputs, good, bad, policy)
    files = tuple(info for _, info in good)
    if purpose == "train":
        config = fit_reweighting(fit_standardization(config, files), files)
    folder = None if cache is None else cache_folder(Path(cache), config, purpose)
    groups = tuple(group for group, _ in good)
    return JetSource(files, groups, config, purpose, reweighting, on_bad_jet, policy, folder, tuple(bad))


def open_files(
    inputs: Sequence[InputFile],
    config: DataConfig,
    names: Iterable[str],
    policy: BadFilePolicy,
    *,
    max_chunk: int = MAX_CHUNK,
    progress: Progress | None = None,
) -> tuple[list[tuple[str, FileInfo]], list[BadFile]]:
    """Open files that must have what some variables need; return them with their groups, and the bad ones."""
    names = set(names)
    good: list[tuple[str, FileInfo]] = []
    bad: list[BadFile] = []
    for number, file in enumerate(inputs):
        try:
            info = inspect_file(file.url, config.treename, max_chunk)
            require_branches(config, names, info)
            good.append((file.sample, info))
        except AuthenticationError:
            raise
        except DataError as error:
            if not policy.skip:
                raise
            bad.append(BadFile(file.url, str(error)))
        if progress:
            progress(number + 1, len(inputs))
    return good, bad


def check_losses(
    inputs: Sequence[InputFile],
    good: Sequence[tuple[str, FileInfo]],
    bad: Sequence[BadFile],
    policy: BadFilePolicy,
) -> None:
    """Raise an error if a group has lost all its files, or too many files are bad."""
    lost = {file.sample for file in inputs} - {group for group, _ in good}
    if lost:
        raise DataError(f"all files of {', '.join(sorted(lost)) or 'the list'} are bad:\n{listing(bad)}")
    policy.check(len(inputs), bad)


def build_index(source: JetSource, progress: Progress | None = None) -> JetIndex:
    """Read labels, selection and weights of all jets, so that what is wrong with them is found at once."""
    num_classes = len(source.config.class_names)
    class_counts = np.zeros((len(source.files), num_classes), dtype=np.int64)
    chunks: list[Chunk] = []
    bad = list(source.bad_files)
    sum_weights, num_jets = 0.0, 0
    for number, file in enumerate(source.files):
        try:
            entries, labels, weights = _scan_file(source, file)
        except DataError as error:
            if not source.on_bad_file.skip or isinstance(error, AuthenticationError):
                raise
            bad.append(BadFile(file.url, str(error)))
            source.on_bad_file.check(len(source.files) + len(source.bad_files), bad)
            continue
        class_counts[number] = np.bincount(labels[labels >= 0], minlength=num_classes)
        sum_weights += weights.sum()
        num_jets += len(weights)
        for start, stop in file.chunks:
            inside = slice(*np.searchsorted(entries, [start, stop]))
            expected = float(weights[inside].sum() if source.samples else len(weights[inside]))
            stratum = f"{source.groups[number]}/{_main_class(labels[inside])}"
            chunks.append(Chunk(number, start, stop, len(weights[inside]), expected, stratum))
        if progress:
            progress(number + 1, len(source.files))
    if source.purpose == "train":
        _check_totals(source, class_counts, sum_weights, bad)
    return JetIndex(tuple(chunks), class_counts, sum_weights / max(num_jets, 1), tuple(bad))


def read_chunk(source: JetSource, file_number: int, start: int, stop: int) -> JetBatch:
    """Read the selected jets of a range of entries, from the cache if it has them."""
    file = source.files[file_number]
    path = None if source.cache is None else chunk_path(source.cache, file, start, stop)
    batch = None if path is None else load_batch(path)
    if batch is None:
        batch = _read_from_file(source, file, start, stop)
        if path is not None:
            save_batch(path, batch)
    if source.split is not None:  # after the cache, which both parts share
        batch = batch.take(np.flatnonzero(source.split.contains(file.url, batch.source_entry.numpy())))
    return replace(batch, source_file=torch.full((len(batch),), file_number, dtype=torch.int32))


def check_jets(source: JetSource, batch: JetBatch) -> None:
    """Raise an error if a jet is bad and bad jets are to stop the job."""
    if source.on_bad_jet == "mark" or not batch.bad.any():
        return
    jet = int(batch.bad.int().argmax())
    url, entry = source.files[int(batch.source_file[jet])].url, int(batch.source_entry[jet])
    raise DataError(
        f"{url}, entry {entry}: an input of this jet is infinite, or a momentum is not finite "
        f"({int(batch.bad.sum())} such jets in the chunk); `partt check --deep` tells which branch; correct "
        "it, keep these jets out with `selection`, or use --on-bad-jet drop"
    )


def jet_weights(config: DataConfig, variables: Variables) -> npt.NDArray[np.float32]:
    """Return the weights that the config gives to jets (N,): from branches, from reweighting, or 1."""
    weights = weights_of(config, variables)
    if weights is not None:
        return weights
    if config.weights is not None:
        return reweight(config, variables)
    return np.ones(len(variables.entries), dtype=np.float32)


def _read_from_file(source: JetSource, file: FileInfo, start: int, stop: int) -> JetBatch:
    config, purpose = source.config, source.purpose
    names = names_for(config, purpose)
    has_labels = not missing_branches(config, config.label_variables, file)
    if has_labels:
        names |= set(config.label_variables)
    variables = select(config, read_variables(config, names, file, start, stop), purpose)
    if has_labels:
        labels = labels_of(config, variables, strict=purpose == "train")
    else:
        labels = np.full(len(variables.entries), -1)
    return pack(
        config,
        variables,
        labels=labels,
        weights=jet_weights(config, variables) if purpose == "train" else None,
        carried=config.observers if purpose == "predict" else config.monitor_variables,
    )


def _scan_file(source: JetSource, file: FileInfo) -> tuple[Array, Array, Array]:
    """Return entries, labels (-1 in prediction) and weights (float64) of a file's selected jets."""
    parts = []
    for selected in scan(source.config, file, source.purpose):
        part = selected
        if source.split is not None:
            part = selected.take(np.flatnonzero(source.split.contains(file.url, selected.entries)))
        if source.purpose == "train":
            labels, weights = labels_of(source.config, part), jet_weights(source.config, part)
        else:
            labels, weights = np.full(part.num_jets, -1), np.ones(part.num_jets, dtype=np.float32)
        parts.append((part.entries, labels, weights.astype(np.float64)))
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    entries, labels, all_weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return entries, labels, all_weights


def _main_class(labels: Array) -> str:
    """Return the class that nearly all jets of a chunk have, or "mixed"."""
    counts = np.bincount(labels[labels >= 0], minlength=1)
    return str(counts.argmax()) if counts.max() > PURE * len(labels) else "mixed"


def _check_totals(
    source: JetSource, class_counts: npt.NDArray[np.int64], sum_weights: float, bad: Sequence[BadFile]
) -> None:
    num_jets = int(class_counts.sum())
    if num_jets == 0 and source.split is not None:
        raise DataError(f"no jets are left for {source.split.describe()}; use more files or other fractions")
    if num_jets == 0:
        raise DataError(
            f"no jet passes the selection {source.config.selection!r} in {len(source.files)} files"
        )
    if not sum_weights > 0:
        raise DataError(f"the mean weight of the jets is {sum_weights / num_jets:g}; it must be positive")
    empty = [
        name
        for name, count in zip(source.config.class_names, class_counts.sum(axis=0), strict=True)
        if not count
    ]
    if bad and empty:
        raise DataError(f"no jets of {', '.join(empty)} are left without the bad files:\n{listing(bad)}")
