"""JetSource -> JetIndex: jets, classes and weights of every chunk, for the read plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.files.info import FileInfo
from partt.data.files.tables import AuthenticationError
from partt.data.jagged import Array
from partt.data.reading.jet_source import BadFile, JetSource, jet_weights, listing
from partt.data.reading.read_plan import Chunk
from partt.data.variables import labels_of, scan
from partt.errors import DataError
from partt.jobs.progress import Progress

PURE = 0.9  # a chunk with a larger fraction of one class must be mixed with chunks of other classes


@dataclass(frozen=True)
class JetIndex:
    """Chunks of all files for the read plan, and numbers of jets."""

    chunks: tuple[Chunk, ...]
    class_counts: npt.NDArray[np.int64]  # (files, classes) number of selected jets; no classes: no labels
    mean_weight: float  # of the selected jets
    bad_files: tuple[BadFile, ...] = ()  # left out so far

    @property
    def num_jets(self) -> int:
        """Number of selected jets of all files."""
        return sum(chunk.num_jets for chunk in self.chunks)

    @property
    def jets_by_file(self) -> list[int]:
        """Number of selected jets of each file."""
        files = [chunk.file for chunk in self.chunks]
        counts = np.bincount(files, [chunk.num_jets for chunk in self.chunks], len(self.class_counts))
        return [int(count) for count in counts]


def build_index(source: JetSource, progress: Progress | None = None) -> JetIndex:
    """Index one source."""
    return build_indexes([source], progress)[0]


def build_indexes(sources: Sequence[JetSource], progress: Progress | None = None) -> list[JetIndex]:
    """Index sources that differ only in `split`; every file is read once.

    Labels, selection and weights of all jets are read, so that faults in them are found before training.
    """
    source = sources[0]
    counters = [_Counter(part) for part in sources]
    bad = list(source.bad_files)
    for number, file in enumerate(source.files):
        try:
            scanned = list(_scan_file(source, file))
        except DataError as error:
            if not source.on_bad_file.skip or isinstance(error, AuthenticationError):
                raise
            bad.append(BadFile(file.url, str(error)))
            source.on_bad_file.check(len(source.files) + len(source.bad_files), bad)
            continue
        for counter in counters:
            counter.add(number, *_joined(scanned))
        if progress:
            progress(number + 1, len(source.files))
    return [counter.index(bad) for counter in counters]


class _Counter:
    """Counts the jets of one source, file by file."""

    def __init__(self, source: JetSource) -> None:
        self.source = source
        num_classes = len(source.config.class_names) if source.has_labels else 0
        self.class_counts = np.zeros((len(source.files), num_classes), dtype=np.int64)
        self.chunks: list[Chunk] = []
        self.sum_weights, self.num_jets = 0.0, 0

    def add(self, number: int, entries: Array, labels: Array, weights: Array) -> None:
        """Count the selected jets of a file."""
        source, file = self.source, self.source.files[number]
        if source.split is not None:
            part = source.split.contains(file.url, entries)
            entries, labels, weights = entries[part], labels[part], weights[part]
        num_classes = self.class_counts.shape[1]
        self.class_counts[number] = np.bincount(labels, minlength=num_classes)[:num_classes]
        self.sum_weights += weights.sum()
        self.num_jets += len(weights)
        for start, stop in file.chunks:
            inside = slice(*np.searchsorted(entries, [start, stop]))
            expected = float(weights[inside].sum() if source.draws_by_weight else len(weights[inside]))
            stratum = f"{source.samples[number]}/{_main_class(labels[inside])}"
            self.chunks.append(Chunk(number, start, stop, len(weights[inside]), expected, stratum))

    def index(self, bad: Sequence[BadFile]) -> JetIndex:
        """Return the index; no jets, or no positive weight, are an error."""
        _check_totals(self.source, self.class_counts, self.num_jets, self.sum_weights, bad)
        mean_weight = self.sum_weights / max(self.num_jets, 1)
        return JetIndex(tuple(self.chunks), self.class_counts, mean_weight, tuple(bad))


def _scan_file(source: JetSource, file: FileInfo) -> Iterator[tuple[Array, Array, Array]]:
    """Yield entries, labels (0 if there are none) and weights (float64) of a file's selected jets."""
    config = source.config
    for selected in scan(config, file, with_labels=source.has_labels):
        labels = labels_of(config, selected) if source.has_labels else np.zeros(selected.num_jets, np.int64)
        yield selected.entries, labels, jet_weights(config, selected).astype(np.float64)


def _joined(parts: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    entries, labels, weights = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return entries, labels, weights


def _main_class(labels: Array) -> str:
    """Return the class of nearly all jets of a chunk, or "mixed"."""
    counts = np.bincount(labels, minlength=1)
    return str(counts.argmax()) if counts.max() > PURE * len(labels) else "mixed"


def _check_totals(
    source: JetSource,
    class_counts: npt.NDArray[np.int64],
    num_jets: int,
    sum_weights: float,
    bad: Sequence[BadFile],
) -> None:
    if num_jets == 0 and source.split is not None:
        raise DataError(f"no jets are left for {source.split.describe()}; use more files or other fractions")
    if num_jets == 0:
        raise DataError(
            f"no jet passes the selection {source.config.selection!r} in {len(source.files)} files"
        )
    if not sum_weights > 0:
        raise DataError(f"the mean weight of the jets is {sum_weights / num_jets:g}; it must be positive")
    names = source.config.class_names if source.has_labels else ()
    empty = [name for name, count in zip(names, class_counts.sum(axis=0), strict=True) if not count]
    if bad and empty:
        raise DataError(f"no jets of {', '.join(empty)} are left without the bad files:\n{listing(bad)}")
