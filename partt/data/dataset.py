"""A JetSource -> batches in the planned order, read ahead by worker processes.

Workers process whole units of the read plan, so the order does not depend on how many there are.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from partt.data.jet_batch import JetBatch, concatenate
from partt.data.jet_source import JetIndex, JetSource, read_chunk
from partt.data.read_plan import WorkUnit, batch_cuts, draw_jets, ordered_units, training_units, unit_order
from partt.errors import DataError, ParttError

UNIT_JETS = 32_768  # jets that are shuffled together: about 150 MB


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
) -> Iterator[JetBatch]:
    """Yield the endless stream of shuffled batches of one rank, from the given batch on.

    Weights act as `source.reweighting` says; those for the loss are normalised to mean 1.
    """
    units = training_units(
        index.chunks,
        seed=seed,
        unit_jets=unit_jets,
        world_size=world_size,
        rank=rank,
        first_jet=first_batch * batch_size,
    )
    reader = UnitReader(source, index, seed)
    yield from _batches(reader, units, batch_size, num_workers, pin_memory=pin_memory)


def ordered_batches(
    source: JetSource,
    index: JetIndex,
    *,
    batch_size: int,
    world_size: int = 1,
    rank: int = 0,
    num_workers: int = 0,
    pin_memory: bool = False,
    unit_jets: int = UNIT_JETS,
) -> Iterator[JetBatch]:
    """Yield each selected jet of a rank's share once, in the order of the files."""
    units = ordered_units(index.chunks, unit_jets=unit_jets, world_size=world_size, rank=rank)
    reader = UnitReader(source, index, seed=None)
    yield from _batches(reader, units, batch_size, num_workers, pin_memory=pin_memory)


class UnitReader(Dataset[tuple[WorkUnit, JetBatch | ParttError]]):
    """Reads units of the read plan; a torch dataset whose keys are units."""

    def __init__(self, source: JetSource, index: JetIndex, seed: int | None) -> None:
        self.source = source
        self.index = index
        self.seed = seed  # None: no sampling, no shuffling

    def __getitem__(self, unit: WorkUnit) -> tuple[WorkUnit, JetBatch | ParttError]:
        """Return the unit's jets, or the error, whose message a DataLoader would garble."""
        try:
            return unit, self._read(unit)
        except ParttError as error:
            return unit, error

    def _read(self, unit: WorkUnit) -> JetBatch:
        parts: list[JetBatch] = []
        jets = []  # positions in the joined parts
        start = 0
        for draw in unit.draws:
            chunk = self.index.chunks[draw.chunk]
            part = read_chunk(self.source, chunk.file, chunk.start, chunk.stop)
            if len(part) != chunk.num_jets:
                url = self.source.files[chunk.file].url
                raise DataError(f"{url} has changed since the job started; start the job again")
            if self.seed is None:
                drawn = np.arange(draw.first, draw.last)
            else:
                sampling = part.weights.numpy() if self.source.samples else len(part)
                drawn = draw_jets(draw, sampling, self.seed, unit.pass_number)
            jets.append(start + drawn)
            parts.append(part)
            start += len(part)
        positions = np.concatenate(jets)
        if self.seed is not None:
            positions = positions[unit_order(unit, self.seed)]
        batch = concatenate(parts).take(positions[unit.first : unit.last])
        samples = self.source.samples and self.seed is not None
        weights = torch.ones(len(batch)) if samples else batch.weights / self.index.mean_weight
        return replace(batch, weights=weights)


def _batches(
    reader: UnitReader, units: Iterable[WorkUnit], batch_size: int, num_workers: int, *, pin_memory: bool
) -> Iterator[JetBatch]:
    loader = DataLoader(
        reader,
        sampler=units,
        batch_size=None,  # a unit is an item; it is cut into batches below
        collate_fn=_unchanged,
        num_workers=num_workers,
        pin_memory=pin_memory,
        # Its own generator: making an iterator would otherwise consume the global random state.
        generator=torch.Generator(),
    )
    pieces: list[JetBatch] = []
    for unit, jets in _iterate(loader):
        if isinstance(jets, ParttError):
            raise jets
        for first, last in batch_cuts(unit, batch_size):
            pieces.append(jets.slice(first, last))
            if sum(len(piece) for piece in pieces) == batch_size:
                yield concatenate(pieces)
                pieces = []
    if pieces:
        yield concatenate(pieces)


def _iterate(
    loader: DataLoader[tuple[WorkUnit, JetBatch | ParttError]],
) -> Iterator[tuple[WorkUnit, JetBatch | ParttError]]:
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"a process that reads jets has died ({error}); if memory ran out, use fewer workers"
        ) from error


def _unchanged(item: Any) -> Any:
    return item
