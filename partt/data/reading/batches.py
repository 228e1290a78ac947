"""JetSource -> batches in the order of the read plan, read ahead by worker processes.

Workers process whole units of the read plan, so the order does not depend on their number.
"""

import multiprocessing
import resource
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch._C import _remove_worker_pids
from torch.utils.data import DataLoader, Dataset

from partt.data.files.tables import AuthenticationError
from partt.data.jet_batch import JetBatch, concatenate, take_jets
from partt.data.reading.jet_index import JetIndex
from partt.data.reading.jet_source import BadFile, JetSource, ShouldStop, check_jets, read_chunk
from partt.data.reading.read_plan import (
    Chunk,
    WorkUnit,
    batch_cuts,
    draw_jets,
    jets_per_pass,
    ordered_units,
    training_units,
    unit_order,
)
from partt.errors import DataError, ParttError
from partt.jobs.stop_signals import SignalledError, leave_signals_to_parent, signals_blocked

UNIT_JETS = 32_768  # jets that are shuffled together, about 150 MB
CHECK_STOP = 0.5  # seconds between checks, while waiting for a reading process, whether to stop

OnBadFile = Callable[[BadFile], None]  # called once for each file that fails while reading
OnNotice = Callable[[str], None]  # called once if the cache cannot be written


def training_batches(
    source: JetSource,
    index: JetIndex,
    *,
    batch_size: int,
    seed: int,
    first_batch: int = 0,
    world_size: int = 1,
    rank: int = 0,
    num_workers: int = 0,
    pin_memory: bool = False,
    unit_jets: int = UNIT_JETS,
    on_bad_file: OnBadFile | None = None,
    on_notice: OnNotice | None = None,
    should_stop: ShouldStop | None = None,
) -> Iterator[JetBatch]:
    """Yield the endless stream of shuffled batches of one rank, starting at a batch.

    Weights are used as `source.reweighting` says; those for the loss are normalised to mean 1. Bad jets,
    unless they are an error, and jets of files skipped while reading are marked as `bad` and stay in their
    batches, so that batches can be counted: use `batch.without_bad()`.
    """
    if jets_per_pass(index.chunks, world_size)[0] == 0:
        expected = sum(chunk.expected for chunk in index.chunks)
        raise DataError(f"a pass has {expected:.3g} jets, too few for {world_size} processes")
    units = training_units(
        index.chunks,
        seed=seed,
        unit_jets=unit_jets,
        world_size=world_size,
        rank=rank,
        first_jet=first_batch * batch_size,
    )
    reader = UnitReader(source, index, seed, should_stop if num_workers == 0 else None)
    units_read = _read_ahead(reader, units, num_workers, pin_memory=pin_memory, should_stop=should_stop)
    accepted = _accepted(units_read, source, index, on_bad_file, on_notice)
    yield from _batches(accepted, batch_size, pin_memory=pin_memory)


def ordered_batches(
    source: JetSource,
    index: JetIndex,
    *,
    batch_size: int,
    world_size: int = 1,
    rank: int = 0,
    max_jets: int | None = None,
    num_workers: int = 0,
    pin_memory: bool = False,
    unit_jets: int = UNIT_JETS,
    on_bad_file: OnBadFile | None = None,
    on_notice: OnNotice | None = None,
    should_stop: ShouldStop | None = None,
) -> Iterator[JetBatch]:
    """Yield batches of each selected jet of a rank's share, once, in the order of the files.

    With `max_jets`, only so many jets of all ranks together, spread over classes and files.
    """
    units = ordered_units(
        index.chunks, unit_jets=unit_jets, world_size=world_size, rank=rank, max_jets=max_jets
    )
    reader = UnitReader(source, index, seed=None, should_stop=should_stop if num_workers == 0 else None)
    units_read = _read_ahead(reader, units, num_workers, pin_memory=pin_memory, should_stop=should_stop)
    accepted = _accepted(units_read, source, index, on_bad_file, on_notice)
    yield from _batches(accepted, batch_size, pin_memory=pin_memory)


@dataclass(frozen=True)
class UnitJets:
    """Jets of a unit, from a reading process."""

    unit: WorkUnit
    jets: JetBatch
    bad_files: tuple[BadFile, ...] = ()
    cache_fault: str = ""  # why the cache cannot be written

    def pin_memory(self) -> "UnitJets":
        """Put the jets into page-locked memory; called by the DataLoader."""
        return replace(self, jets=self.jets.pin_memory())


class UnitReader(Dataset[UnitJets | ParttError]):
    """Reads units of the read plan; a torch dataset whose keys are units."""

    def __init__(
        self, source: JetSource, index: JetIndex, seed: int | None, should_stop: ShouldStop | None = None
    ) -> None:
        self.source = source
        self.index = index
        self.seed = seed  # None: no sampling, no shuffling
        self.should_stop = should_stop  # None: whoever waits for the reading process ends it

    def __getitem__(self, unit: WorkUnit) -> UnitJets | ParttError:
        """Read a unit; errors are returned, not raised, because a DataLoader would change their messages."""
        try:
            return self._read(unit)
        except ParttError as error:
            return error

    def _read(self, unit: WorkUnit) -> UnitJets:
        chunks = [self.index.chunks[draw.chunk] for draw in unit.draws]
        parts, bad_files = self._read_chunks(chunks)
        starts = np.cumsum([0, *map(len, parts[:-1])])
        positions = []
        for draw, part, start in zip(unit.draws, parts, starts, strict=True):
            if self.seed is None:
                drawn = np.arange(draw.first, draw.last)
            else:
                weights = part.weights.numpy() if self.source.draws_by_weight else len(part)
                drawn = draw_jets(draw, weights, self.seed, unit.pass_number)
            positions.append(start + drawn)
        order = np.concatenate(positions)
        if self.seed is not None:
            order = order[unit_order(unit, self.seed)]
        jets = take_jets(parts, order[unit.first : unit.last])
        if self.source.draws_by_weight and self.seed is not None:
            jets = replace(jets, weights=torch.ones(len(jets)))
        else:
            jets = replace(jets, weights=jets.weights / self.index.mean_weight)
        cache_fault = "" if self.source.cache is None else self.source.cache.fault
        return UnitJets(unit, jets, tuple(bad_files), cache_fault)

    def _read_chunks(self, chunks: list[Chunk]) -> tuple[list[JetBatch], list[BadFile]]:
        """Read chunks; a chunk of a skipped file becomes as many jets marked as bad."""
        parts: list[JetBatch | None] = []
        errors: dict[str, DataError] = {}
        for chunk in chunks:
            url = self.source.files[chunk.file].url
            try:
                part = read_chunk(self.source, chunk.file, chunk.start, chunk.stop, self.should_stop)
            except DataError as error:
                if not self.source.on_bad_file.skip or isinstance(error, AuthenticationError):
                    raise
                errors[url] = error
                parts.append(None)
                continue
            if len(part) != chunk.num_jets:
                raise DataError(f"{url} has changed since the job started; start the job again")
            check_jets(self.source, part)
            parts.append(part)
        example = next((part for part in parts if part is not None and len(part)), None)
        if example is None and errors:
            raise next(iter(errors.values()))
        filled = [
            part if part is not None or example is None else _marked_as_bad(example, chunk)
            for part, chunk in zip(parts, chunks, strict=True)
        ]
        bad_files = [BadFile(url, str(error)) for url, error in errors.items()]
        return [part for part in filled if part is not None], bad_files


def _marked_as_bad(example: JetBatch, chunk: Chunk) -> JetBatch:
    """Return placeholders for the jets of a chunk that cannot be read: copies of a jet, marked as bad."""
    copies = example.take(np.zeros(chunk.num_jets, dtype=np.int64))
    return replace(
        copies,
        source_file=torch.full_like(copies.source_file, chunk.file),
        bad=torch.ones_like(copies.bad),
        weights=torch.ones_like(copies.weights),
    )


def _read_ahead(
    reader: UnitReader,
    units: Iterable[WorkUnit],
    num_workers: int,
    *,
    pin_memory: bool,
    should_stop: ShouldStop | None,
) -> Iterator[UnitJets | ParttError]:
    others = set(multiprocessing.active_children())
    with warnings.catch_warnings(), signals_blocked():
        # torch warns about more workers than cores, which still help while they wait for a remote disk.
        warnings.filterwarnings("ignore", "This DataLoader will create")
        loader = DataLoader(
            reader,
            sampler=units,
            batch_size=None,  # an item is a unit, cut into batches afterwards
            collate_fn=_unchanged,
            num_workers=num_workers,
            pin_memory=pin_memory,
            timeout=CHECK_STOP if num_workers else 0,
            prefetch_factor=1 if num_workers else None,  # a unit is large: read one ahead, not two
            worker_init_fn=_start_reader,
            # Its own generator, because an iterator would draw from the global one.
            generator=torch.Generator(),
        )
        items: Any = iter(loader)
        if num_workers:  # otherwise torch's signal handler raises their deaths anywhere in the program
            _remove_worker_pids(id(items))
            items._worker_pids_set = False  # noqa: SLF001 - there is no public way
    readers = set(multiprocessing.active_children()) - others
    while True:
        try:
            with _deaths_raised(readers):
                item = next(items)
        except StopIteration:
            return
        except RuntimeError as error:
            _check_readers(readers)
            if "DataLoader timed out" not in str(error):
                raise
            if should_stop is not None and should_stop():
                for process in readers:
                    process.terminate()  # or the DataLoader would wait for what they are reading
                raise SignalledError("stopped by a signal while waiting for jets") from None
        except (ConnectionError, EOFError, FileNotFoundError) as error:
            # A reader died between announcing its jets and handing them over.
            raise _dead_reader(str(error) or type(error).__name__) from error
        else:
            yield item


@contextmanager
def _deaths_raised(readers: Iterable[BaseProcess]) -> Iterator[None]:
    """Raise an error if a reader dies while we wait for jets: half a message would be waited for for ever."""
    is_main = threading.current_thread() is threading.main_thread()  # which alone handles signals
    before = signal.getsignal(signal.SIGCHLD) or signal.SIG_DFL

    def handle(number: int, frame: FrameType | None) -> None:
        if callable(before):
            before(number, frame)
        try:
            _check_readers(readers)
        except DataError:
            signal.signal(signal.SIGCHLD, before)  # once only
            raise

    if is_main:
        signal.signal(signal.SIGCHLD, handle)
    try:
        _check_readers(readers)
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGCHLD, before)


def _check_readers(readers: Iterable[BaseProcess]) -> None:
    for reader in readers:
        if not reader.is_alive() and reader.exitcode:
            code = reader.exitcode
            raise _dead_reader(signal.Signals(-code).name if code < 0 else f"exit code {code}")


def _start_reader(number: int) -> None:
    del number
    leave_signals_to_parent()


def _accepted(
    units_read: Iterator[UnitJets | ParttError],
    source: JetSource,
    index: JetIndex,
    on_bad_file: OnBadFile | None,
    on_notice: OnNotice | None,
) -> Iterator[UnitJets]:
    """Yield what workers have read; raise their errors, and check how many files they skipped."""
    bad = {file.url: file for file in index.bad_files}
    with _dead_readers_reported():
        for item in units_read:
            if isinstance(item, ParttError):
                raise item
            if item.cache_fault and source.cache is not None and not source.cache.is_reported:
                source.cache.is_reported = True
                if on_notice:
                    on_notice(item.cache_fault)
            for file in item.bad_files:
                if file.url not in bad:
                    bad[file.url] = file
                    source.on_bad_file.check(len(source.files) + len(source.bad_files), list(bad.values()))
                    if on_bad_file:
                        on_bad_file(file)
            yield item


@contextmanager
def _dead_readers_reported() -> Iterator[None]:
    """Turn torch's errors about reading processes, dead or with too few descriptors, into clear ones."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if "Too many open files" in str(error):
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            raise DataError(
                f"{limit} file descriptors (ulimit -n) are too few for so many reading processes; use fewer "
                "with --workers"
            ) from error
        if isinstance(error, OSError) or "DataLoader worker" not in str(error):
            raise
        raise _dead_reader(str(error)) from error


def _dead_reader(reason: str) -> DataError:
    return DataError(
        f"a process that reads jets has died ({reason}); if memory ran out, use fewer workers; "
        "in a container, give it more shared memory (--shm-size)"
    )


def _batches(units: Iterable[UnitJets], batch_size: int, *, pin_memory: bool) -> Iterator[JetBatch]:
    """Cut units into batches; join the pieces of a batch that spans several units."""
    pieces: list[JetBatch] = []
    for item in units:
        for first, last in batch_cuts(item.unit, batch_size):
            pieces.append(item.jets.slice(first, last))
            if sum(map(len, pieces)) == batch_size:
                yield _joined(pieces, pin_memory=pin_memory)
                pieces = []
    if pieces:
        yield _joined(pieces, pin_memory=pin_memory)


def _joined(pieces: list[JetBatch], *, pin_memory: bool) -> JetBatch:
    batch = concatenate(pieces)
    return batch.pin_memory() if pin_memory and len(pieces) > 1 else batch


def _unchanged(item: Any) -> Any:
    return item
