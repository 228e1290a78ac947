"""Files + data config -> JetSource, whose jets are read chunk by chunk for training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from partt.data.config.data_config import DataConfig
from partt.data.files.lists import InputFile
from partt.data.files.tables import MAX_CHUNK, AuthenticationError, FileInfo
from partt.data.jet_batch import JetBatch, Positions
from partt.data.jet_files import EventFile, open_jets
from partt.data.packing import pack
from partt.data.reading.batch_cache import BatchCache
from partt.data.reading.splitting import Split
from partt.data.reweighting import fit_reweighting, reweight
from partt.data.standardization import fit_standardization
from partt.data.variables import (
    Variables,
    labels_of,
    missing_branches,
    names_for,
    names_for_index,
    passes_selection,
    read_variables,
    require_branches,
    select,
    targets_of,
    weights_of,
)
from partt.errors import DataError
from partt.jobs.progress import Progress

ShouldStop = Callable[[], bool]  # asked while work goes on; a SignalledError then ends it
_Range = tuple[FileInfo, int, int]  # of entries of a file: start, stop
Require = Callable[[FileInfo], None]  # raises a DataError if a file lacks something


class SoftLabeller(Protocol):
    """A teacher: gives jets soft labels, the log-probabilities of the classes."""

    @property
    def key(self) -> str:
        """What decides the labels, for the cache."""

    def require(self, file: FileInfo) -> None:
        """Raise an error if a file lacks branches that the labels need."""

    def label(
        self, file: FileInfo, start: int, stop: int, jets: Positions, should_stop: ShouldStop | None
    ) -> Tensor:
        """Return the soft labels (N, C) of some jets of a chunk, by their positions; NaN: not known."""


@dataclass(frozen=True)
class BadFile:
    """A file that is left out, and the reason."""

    url: str
    reason: str


@dataclass(frozen=True)
class BadFilePolicy:
    """What to do with files that cannot be read: stop, or skip some."""

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
    """List bad files, one per line."""
    return "\n".join(f"  {file.reason}" for file in bad[:20])


@dataclass(frozen=True)
class JetSource:
    """Opened files and how to read them; everything that a reading process needs."""

    files: tuple[FileInfo, ...]
    samples: tuple[str, ...]  # of each file, NAME in NAME:GLOB
    config: DataConfig
    reweighting: Literal["sample", "loss"] = "sample"
    on_bad_jet: Literal["error", "mark"] = "error"
    on_bad_file: BadFilePolicy = BadFilePolicy()
    cache: BatchCache | None = None
    bad_files: tuple[BadFile, ...] = ()  # those that could not be opened
    split: Split | None = None  # the entries to use; None: all
    is_labelled: bool = True  # whether all files have the labels of the config's classes
    teacher: SoftLabeller | None = None  # of soft labels

    @property
    def has_labels(self) -> bool:
        """Whether jets have labels of classes."""
        return self.is_labelled and bool(self.config.class_names)

    @property
    def draws_by_weight(self) -> bool:
        """Whether jets are drawn according to their weights, instead of weighting the loss."""
        weights = self.config.weights
        fitted = weights is not None and not weights.use_precomputed_weights
        return self.reweighting == "sample" and fitted


def open_source(
    inputs: Sequence[InputFile],
    config: DataConfig,
    *,
    reweighting: Literal["sample", "loss"] = "sample",
    on_bad_jet: Literal["error", "mark"] = "error",
    on_bad_file: Literal["error", "skip"] = "error",
    max_bad_fraction: float = 0.05,
    cache: str | Path | None = None,
    needs_labels: bool = True,
    teacher: SoftLabeller | None = None,
    progress: Progress | None = None,
) -> JetSource:
    """Open all files, check that they have the branches of the config, and fit scales and weights.

    With on_bad_file="skip", broken files are left out and listed, up to `max_bad_fraction` of the files, if a
    file of each sample remains. A file without read permission is always an error. Labels that are not needed
    are read only if all files have them.
    """
    policy = BadFilePolicy(on_bad_file == "skip", max_bad_fraction)
    names = names_for(config, "train", with_labels=needs_labels)

    def require(file: FileInfo) -> None:
        require_branches(config, names, file)
        if teacher is not None:
            teacher.require(file)

    good, bad = open_files(inputs, config, require, policy, progress=progress)
    check_losses(inputs, good, bad, policy)
    files = tuple(info for _, info in good)
    is_labelled = not any(missing_branches(config, config.label_variables, file) for file in files)
    config = fit_standardization(config, files, skip_bad=policy.skip)
    config = fit_reweighting(config, files, skip_bad=policy.skip)
    return JetSource(
        files,
        tuple(sample for sample, _ in good),
        config,
        reweighting,
        on_bad_jet,
        policy,
        cache=None if cache is None else BatchCache(Path(cache), config, has_labels=is_labelled),
        bad_files=tuple(bad),
        is_labelled=is_labelled,
        teacher=teacher,
    )


def open_files(
    inputs: Sequence[InputFile],
    config: DataConfig,
    require: Require,
    policy: BadFilePolicy,
    *,
    max_chunk: int = MAX_CHUNK,
    progress: Progress | None = None,
) -> tuple[list[tuple[str, FileInfo]], list[BadFile]]:
    """Open files that must have what is required; return samples and files, and bad files."""
    good: list[tuple[str, FileInfo]] = []
    bad: list[BadFile] = []
    for number, file in enumerate(inputs):
        try:
            info = open_jets(file, config, max_chunk)
            require(info)
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
    """Raise an error if all files of a sample are bad, or too many files."""
    lost = {file.sample for file in inputs} - {sample for sample, _ in good}
    if lost:
        raise DataError(f"all files of {', '.join(sorted(lost)) or 'the list'} are bad:\n{listing(bad)}")
    policy.check(len(inputs), bad)


def read_chunk(
    source: JetSource, file_number: int, start: int, stop: int, should_stop: ShouldStop | None = None
) -> JetBatch:
    """Read the selected jets of a range of entries, from the cache if they are in it.

    `should_stop` is asked while a teacher labels them.
    """
    file = source.files[file_number]
    if source.cache is None:
        batch = _read_from_file(source, file, start, stop)
    else:
        path = source.cache.path(file, start, stop)
        cached = source.cache.load(path)
        batch = cached or _read_from_file(source, file, start, stop)
        if cached is None:
            source.cache.save(path, batch)
    if source.split is not None:  # after the cache, which training and validation share
        batch = batch.take(np.flatnonzero(source.split.contains(file.url, batch.source_entry.numpy())))
    if source.teacher is not None:  # after the split: nobody reads the labels of the other part
        chunk = (file, start, stop)
        labels = _soft_labels(source, source.teacher, chunk, _positions(source, chunk, batch), should_stop)
        batch = replace(batch, soft_labels=labels)
    return replace(batch, source_file=torch.full((len(batch),), file_number, dtype=torch.int32))


def check_jets(source: JetSource, batch: JetBatch) -> None:
    """Raise an error if a jet is bad, unless bad jets are only marked."""
    if source.on_bad_jet == "mark" or not batch.bad.any():
        return
    jet = int(batch.bad.int().argmax())
    url, entry = source.files[int(batch.source_file[jet])].url, int(batch.source_entry[jet])
    raise DataError(
        f"{url}, entry {entry}: an input of this jet is infinite, or a momentum is NaN or infinite "
        f"({int(batch.bad.sum())} of {len(batch)} jets read together); `partt check --deep` shows "
        "which branch; correct it, exclude these jets with `selection`, or use --on-bad-jet drop"
    )


def jet_weights(config: DataConfig, variables: Variables) -> npt.NDArray[np.float32]:
    """Return the weights of jets (N,): from branches, from reweighting, or 1."""
    weights = weights_of(config, variables)
    if weights is not None:
        return weights
    if config.weights is not None:
        return reweight(config, variables)
    return np.ones(len(variables.entries), dtype=np.float32)


def _positions(source: JetSource, chunk: _Range, batch: JetBatch) -> Positions:
    """Return where the jets of a batch are among those of the chunk that it was read from."""
    file, start, _ = chunk
    if not isinstance(file, EventFile):
        return batch.source_entry.numpy() - start
    config = source.config  # the entry of a jet is its event: find again which jets were selected
    variables = read_variables(config, names_for_index(config, "train", with_labels=False), *chunk)
    jets = np.flatnonzero(passes_selection(config, variables, "train"))
    if source.split is None:
        return jets
    return jets[source.split.contains(file.url, variables.entries[jets])]


def _soft_labels(
    source: JetSource,
    teacher: SoftLabeller,
    chunk: _Range,
    jets: Positions,
    should_stop: ShouldStop | None,
) -> Tensor:
    """Return the soft labels of jets of a chunk, from the cache if they are in it."""
    cache = source.cache
    if cache is None:
        return teacher.label(*chunk, jets, should_stop)
    path = cache.soft_labels_path(teacher.key, *chunk, jets)
    labels = cache.load_soft_labels(path)
    if labels is None:
        labels = teacher.label(*chunk, jets, should_stop)
        cache.save_soft_labels(path, labels)
    return labels


def _read_from_file(source: JetSource, file: FileInfo, start: int, stop: int) -> JetBatch:
    config = source.config
    names = names_for(config, "train", with_labels=source.has_labels)
    variables = read_variables(config, names, file, start, stop)
    selected = select(config, variables, "train")
    return pack(
        config,
        selected,
        labels=labels_of(config, selected) if source.has_labels else None,
        targets=targets_of(config, selected),
        weights=jet_weights(config, selected),
        particle_labels=config.particle_labels,
    )
