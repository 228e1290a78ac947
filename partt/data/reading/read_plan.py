"""The read plan: the order of the jets of all files, as pure functions of an index, a seed and a position.

Files consist of chunks of entries. A *pass* uses every selected jet once, or, if jets are drawn by weight, on
average as often as its weight. It is cut into *work units*: each takes its share of every stratum (sample and
class), so that classes are mixed even if each file has only one. The jets of a unit are shuffled together and
cut into batches. Ranks take consecutive slices of a pass. Training reads an endless stream of passes; a
position in it is a number of jets, and a resumed run starts at that number.

Nothing here depends on the number of reading processes, and nothing is read here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt

# A share of a stratum ends at the nearest end of a chunk, if that changes it by less than this fraction;
# otherwise a chunk is divided between two units, and read twice.
MIXING_TOLERANCE = 0.1
MAX_REREADING = 1.5  # how often chunks are read in a pass, on average, for better mixing
MIN_SPREAD = 16  # chunks of a stratum that give jets, if it has so many and only some of its jets are used


@dataclass(frozen=True)
class Chunk:
    """A range of entries of a file that is read at once."""

    file: int  # position in the list of files
    start: int
    stop: int
    num_jets: int  # selected
    expected: float  # mean number of jets that a pass takes from it: the sum of the weights, or num_jets
    stratum: str  # sample and class; every unit mixes all strata


@dataclass(frozen=True)
class Draw:
    """Jets `first` to before `last` of the `num_drawn` jets that a pass draws from a chunk."""

    chunk: int  # position in the index
    num_drawn: int
    first: int
    last: int


@dataclass(frozen=True)
class WorkUnit:
    """What a reading process reads at once; of its shuffled jets it yields `first` to before `last`."""

    pass_number: int
    number: int
    draws: tuple[Draw, ...]
    first: int
    last: int
    position: int  # of its first jet in the rank's stream

    def __len__(self) -> int:
        """Return the number of jets that it yields."""
        return self.last - self.first


Index = Sequence[Chunk]


def jets_per_pass(index: Index, world_size: int = 1) -> tuple[int, int]:
    """Return the number of jets per rank in a training pass, and the remainder.

    The remainder is left out, different jets in every pass.
    """
    return divmod(_num_drawn(index), world_size)


def training_units(
    index: Index,
    *,
    seed: int,
    unit_jets: int,
    world_size: int = 1,
    rank: int = 0,
    first_jet: int = 0,
) -> Iterator[WorkUnit]:
    """Yield the endless stream of units of a rank, starting at a position of its stream."""
    per_rank, _ = jets_per_pass(index, world_size)
    if per_rank == 0:
        return
    for pass_number in count(first_jet // per_rank):
        units = _shuffled_pass(index, seed, pass_number, unit_jets)
        pass_position = pass_number * per_rank
        for unit in _slice(units, rank * per_rank, (rank + 1) * per_rank):
            moved = replace(unit, position=unit.position + pass_position)
            skipped = max(0, first_jet - moved.position)
            if skipped < len(moved):
                yield replace(moved, first=moved.first + skipped, position=moved.position + skipped)


def ordered_units(
    index: Index, *, unit_jets: int, world_size: int = 1, rank: int = 0, max_jets: int | None = None
) -> Iterator[WorkUnit]:
    """Yield units with every selected jet once, or with `max_jets` of them, in the order of the files."""
    kept = [chunk.num_jets for chunk in index] if max_jets is None else spread_jets(index, max_jets)
    units: list[tuple[Draw, ...]] = []
    draws: list[Draw] = []
    for number, num_jets in enumerate(kept):
        if num_jets:
            draws.append(Draw(number, index[number].num_jets, 0, num_jets))
        if _num_jets(draws) >= unit_jets:
            units.append(tuple(draws))
            draws = []
    if draws:
        units.append(tuple(draws))
    everything = [_whole_unit(0, number, draws) for number, draws in enumerate(units)]
    total = sum(kept)
    yield from _slice(everything, total * rank // world_size, total * (rank + 1) // world_size)


def spread_jets(index: Index, max_jets: int) -> list[int]:
    """Return how many jets of each chunk, its first ones, to use if there should be at most `max_jets`.

    Every stratum gives its share, from chunks that are spread over the files: MIN_SPREAD of them, or as many
    as are needed; no more, because a chunk is read as a whole.
    """
    total = sum(chunk.num_jets for chunk in index)
    strata: dict[str, list[int]] = {}
    for number, chunk in enumerate(index):
        strata.setdefault(chunk.stratum, []).append(number)
    ends = np.cumsum([sum(index[number].num_jets for number in chunks) for chunks in strata.values()])
    wanted = np.diff(
        np.rint(ends * (min(max_jets, total) / max(total, 1))).astype(np.int64), prepend=0
    ).tolist()
    kept = [0] * len(index)
    for chunks, num_wanted in zip(strata.values(), wanted, strict=True):
        share = -(-num_wanted // min(len(chunks), MIN_SPREAD))
        left = num_wanted
        while left:
            for number in _spread_order(chunks):
                more = min(share, index[number].num_jets - kept[number], left)
                kept[number] += more
                left -= more
    return kept


def batch_cuts(unit: WorkUnit, batch_size: int) -> list[tuple[int, int]]:
    """Cut the jets of a unit where batches of the stream end.

    Batches end at multiples of `batch_size` in the stream, so the first and last piece of a unit may
    belong to batches that the neighbouring units complete.
    """
    to_next_end = -unit.position % batch_size or batch_size
    ends = range(to_next_end, len(unit), batch_size)
    return list(pairwise([0, *ends, len(unit)]))


def draw_jets(
    draw: Draw, weights: npt.NDArray[np.floating] | int, seed: int, pass_number: int
) -> npt.NDArray[np.int64]:
    """Draw the jets of a chunk for a pass, in random order, and return those of this draw.

    `weights`: weights of the selected jets of the chunk, or only their number. Systematic sampling: with
    weights scaled such that their sum is the number drawn, a jet of weight w is drawn w times on average, and
    always w times, rounded up or down.
    """
    random = _random(seed, pass_number, draw.chunk, "draw")
    if isinstance(weights, int):
        jets = np.arange(weights)
    else:
        cumulative = np.cumsum(weights, dtype=np.float64)
        marks = (np.arange(draw.num_drawn) + random.uniform()) * (cumulative[-1] / max(draw.num_drawn, 1))
        jets = np.minimum(np.searchsorted(cumulative, marks, side="right"), len(cumulative) - 1)
    random.shuffle(jets)
    return jets[draw.first : draw.last]


def unit_order(unit: WorkUnit, seed: int) -> npt.NDArray[np.int64]:
    """Return the random order of all jets drawn for a unit."""
    return _random(seed, unit.pass_number, unit.number, "order").permutation(_num_jets(unit.draws))


def _random(seed: int, pass_number: int, number: int, purpose: str) -> np.random.Generator:
    purposes = {"pass": 0, "draw": 1, "order": 2}
    return np.random.default_rng([seed, pass_number, number, purposes[purpose]])


def _num_drawn(index: Index) -> int:
    # The tolerance is for rounding: ten times 0.1 must give one jet.
    return int(np.floor(sum(chunk.expected for chunk in index) + 1e-6))


def _num_jets(draws: Sequence[Draw]) -> int:
    return sum(draw.last - draw.first for draw in draws)


def _whole_unit(pass_number: int, number: int, draws: tuple[Draw, ...]) -> WorkUnit:
    return WorkUnit(pass_number, number, draws, first=0, last=_num_jets(draws), position=0)


def _slice(units: Sequence[WorkUnit], first: int, last: int) -> Iterator[WorkUnit]:
    """Yield the parts of units with jets `first` to before `last`; positions count from `first`."""
    start = 0
    for unit in units:
        begin, end = max(first - start, 0), min(last - start, len(unit))
        if begin < end:
            yield replace(unit, first=begin, last=end, position=start + begin - first)
        start += len(unit)


def _spread_order(chunks: Sequence[int]) -> list[int]:
    """Return the chunks in an order in which those of every beginning are far from each other."""
    num_bits = len(chunks).bit_length()
    reversed_bits = [int(f"{place:0{num_bits}b}"[::-1], 2) for place in range(len(chunks))]
    return [chunks[place] for place in np.argsort(reversed_bits)]


def _shuffled_pass(index: Index, seed: int, pass_number: int, unit_jets: int) -> list[WorkUnit]:
    random = _random(seed, pass_number, 0, "pass")
    strata: dict[str, list[int]] = {}
    for number in random.permutation(len(index)):
        strata.setdefault(index[number].stratum, []).append(int(number))
    # Jets drawn from each chunk: its expectation, randomly rounded up or down such that the sum is exact.
    order = [number for chunks in strata.values() for number in chunks]
    total = _num_drawn(index)
    cumulative = np.cumsum([index[number].expected for number in order])
    marks = np.ceil(cumulative * (total / cumulative[-1]) - random.uniform(1e-6, 1 - 1e-6)).astype(np.int64)
    num_drawn = dict(zip(order, np.diff(marks, prepend=0).tolist(), strict=True))

    num_units = _num_units([len(chunks) for chunks in strata.values()], round(total / unit_jets))
    draws: list[list[Draw]] = [[] for _ in range(num_units)]
    for chunks in strata.values():
        _share_out(chunks, [num_drawn[number] for number in chunks], draws)
    return [_whole_unit(pass_number, number, tuple(unit)) for number, unit in enumerate(draws) if unit]


def _num_units(num_chunks: Sequence[int], wanted: int) -> int:
    """Return the number of units: as wanted, unless too many chunks would be read twice.

    A stratum with fewer chunks than units must divide its chunks between units.
    """
    units = max(1, min(wanted, max(num_chunks)))
    while units > 1 and sum(max(chunks, units) for chunks in num_chunks) > MAX_REREADING * sum(num_chunks):
        units -= 1
    return units


def _share_out(chunks: Sequence[int], num_drawn: Sequence[int], draws: list[list[Draw]]) -> None:
    """Divide the jets of the chunks of a stratum evenly between the units."""
    ends = np.cumsum(num_drawn)
    share = ends[-1] / len(draws)
    cuts = np.rint(np.arange(1, len(draws) + 1) * share).astype(np.int64)
    after = np.minimum(np.searchsorted(ends, cuts), len(ends) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(ends[after] - cuts < np.abs(cuts - ends[before]), ends[after], ends[before])
    cuts = np.where(np.abs(nearest - cuts) <= MIXING_TOLERANCE * share, nearest, cuts)
    begin = 0
    for unit, end in zip(draws, cuts.tolist(), strict=True):
        touched = range(
            int(np.searchsorted(ends, begin, side="right")),
            int(np.searchsorted(ends, end - 1, side="right")) + 1,
        )
        for number in touched if begin < end else ():
            start = int(ends[number]) - num_drawn[number]
            first, last = max(begin - start, 0), min(end - start, num_drawn[number])
            if first < last:
                unit.append(Draw(chunks[number], num_drawn[number], first, last))
        begin = end
