"""Files + data config -> a JetSource that can be read, and an index of its jets for the read plan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from partt.data.batch_cache import cache_folder, chunk_path, load_batch, save_batch
from partt.data.columns import (
    Purpose,
    Variables,
    labels_of,
    missing_branches,
    names_for,
    read_variables,
    scan,
    select,
    weights_of,
)
from partt.data.data_config import DataConfig
from partt.data.file_lists import InputFile
from partt.data.jagged import Array
from partt.data.jet_batch import JetBatch
from partt.data.packing import pack
from partt.data.read_plan import Chunk
from partt.data.reweighting import fit_reweighting, reweight
from partt.data.root_files import AuthenticationError, FileInfo, inspect_file
from partt.data.standardization import fit_standardization
from partt.errors import DataError

Progress = Callable[[int, int], None]  # files done, files in total


@dataclass(frozen=True)
class BadFile:
    """A file that was left out, and why."""

    url: str
    reason: str


@dataclass(frozen=True)
class JetSource:
    """The jets of some files as a config reads them: all that another process needs to read them."""

    files: tuple[FileInfo, ...]
    groups: tuple[str, ...]  # the name that each file was given with
    config: DataConfig
    purpose: Purpose
    reweighting: Literal["sample", "loss"] = "sample"
    on_bad_jet: Literal["error", "mark"] = "error"
    cache: Path | None = None  # the folder that belongs to this config and purpose
    bad_files: tuple[BadFile, ...] = ()

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
    class_counts: npt.NDArray[np.int64]  # (files, classes) selected jets
    mean_weight: float  # of the selected jets

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
    good: list[tuple[str, FileInfo]] = []
    bad: list[BadFile] = []
    for number, file in enumerate(inputs):
        try:
            good.append((file.group, _inspect(file, config, purpose)))
        except AuthenticationError:
            raise
        except DataError as error:
            if on_bad_file == "error":
                raise
            bad.append(BadFile(file.url, str(error)))
        if progress:
            progress(number + 1, len(inputs))
    _limit_bad_files(inputs, bad, max_bad_fraction)
    files = tuple(info for _, info in good)
    if purpose == "train":
        config = fit_reweighting(fit_standardization(config, files), files)
    groups = tuple(group for group, _ in good)
    folder = None if cache is None else cache_folder(Path(cache), config, purpose)
    return JetSource(files, groups, config, purpose, reweighting, on_bad_jet, folder, tuple(bad))


def build_index(source: JetSource, progress: Progress | None = None) -> JetIndex:
    """Read labels, selection and weights of all jets, so that what is wrong with them is found at once."""
    num_classes = len(source.config.class_names)
    class_counts = np.zeros((len(source.files), num_classes), dtype=np.int64)
    chunks: list[Chunk] = []
    sum_weights = 0.0
    for number, file in enumerate(source.files):
        entries, labels, weights = _scan_file(source, file)
        class_counts[number] = np.bincount(labels, minlength=num_classes)
        sum_weights += weights.sum()
        for start, stop in file.chunks:
            inside = slice(*np.searchsorted(entries, [start, stop]))
            num_jets = len(labels[inside])
            expected = float(weights[inside].sum()) if source.samples else float(num_jets)
            most = np.bincount(labels[inside]).argmax() if num_jets else ""
            chunks.append(Chunk(number, start, stop, num_jets, expected, f"{source.groups[number]}/{most}"))
        if progress:
            progress(number + 1, len(source.files))
    num_jets = int(class_counts.sum())
    if num_jets == 0:
        raise DataError(
            f"no jet passes the selection {source.config.selection!r} in {len(source.files)} files"
        )
    if not sum_weights > 0:
        raise DataError(f"the mean weight of the jets is {sum_weights / num_jets:g}; it must be positive")
    return JetIndex(tuple(chunks), class_counts, sum_weights / num_jets)


def read_chunk(source: JetSource, file_number: int, start: int, stop: int) -> JetBatch:
    """Read the selected jets of a range of entries, from the cache if it has them."""
    file = source.files[file_number]
    path = None
    batch = None
    if source.cache is not None:
        path = chunk_path(source.cache, file, start, stop)
        batch = load_batch(path)
    if batch is None:
        batch = _read_from_file(source, file, start, stop)
        if path is not None:
            save_batch(path, batch)
    if source.on_bad_jet == "error" and batch.bad.any():
        entry = int(batch.source_entry[batch.bad][0])
        raise DataError(
            f"{file.url}, entry {entry}: an input of this jet is infinite, or a momentum is not finite "
            f"({int(batch.bad.sum())} such jets in entries {start} to {stop - 1}); `partt check --deep` "
            "tells which branch; correct it, keep these jets out with `selection`, or use --on-bad-jet drop"
        )
    return replace(batch, source_file=torch.full((len(batch),), file_number, dtype=torch.int32))


def _read_from_file(source: JetSource, file: FileInfo, start: int, stop: int) -> JetBatch:
    config, purpose = source.config, source.purpose
    names = names_for(config, purpose)
    has_labels = purpose == "train" or not missing_branches(config, config.label_variables, file)
    if has_labels:
        names |= set(config.label_variables)
    variables = select(config, read_variables(config, names, file, start, stop), purpose)
    return pack(
        config,
        variables,
        labels=labels_of(config, variables) if has_labels else None,
        weights=_weights(source, variables) if purpose == "train" else None,
        carried=config.observers if purpose == "predict" else config.monitor_variables,
    )


def _weights(source: JetSource, variables: Variables) -> npt.NDArray[np.float32]:
    weights = weights_of(source.config, variables)
    if weights is not None:
        return weights
    if source.config.weights is not None:
        return reweight(source.config, variables)
    return np.ones(len(variables.entries), dtype=np.float32)


def _scan_file(source: JetSource, file: FileInfo) -> tuple[Array, Array, Array]:
    """Return entries, labels and weights (float64) of a file's selected jets."""
    parts = [
        (part.entries, labels_of(source.config, part), _weights(source, part).astype(np.float64))
        for part in scan(source.config, file)
    ]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    entries, labels, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return entries, labels, weights


def _inspect(file: InputFile, config: DataConfig, purpose: Purpose) -> FileInfo:
    info = inspect_file(file.url, config.treename)
    missing = missing_branches(config, names_for(config, purpose), info)
    if missing:
        raise DataError(
            f"{info.url}, tree {info.tree!r}: the data config needs branches that are not there: "
            f"{', '.join(missing)}; correct their names in the config, or map them with branch_magic"
        )
    return info


def _limit_bad_files(inputs: Sequence[InputFile], bad: Sequence[BadFile], max_bad_fraction: float) -> None:
    if not bad:
        return
    urls = {file.url for file in bad}
    lost = {file.group for file in inputs} - {file.group for file in inputs if file.url not in urls}
    listing = "\n".join(f"  {file.reason}" for file in bad[:20])
    if lost:
        raise DataError(f"all files of {', '.join(sorted(lost)) or 'the list'} are bad:\n{listing}")
    if len(bad) > max_bad_fraction * len(inputs):
        raise DataError(
            f"{len(bad)} of {len(inputs)} files are bad, more than --max-bad-fraction {max_bad_fraction:g} "
            f"allows:\n{listing}"
        )
