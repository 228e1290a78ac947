"""The read plan as a pure function: complete, without repetition, mixed, resumable, fair to ranks."""

import time
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partt.data.reading.read_plan import (
    Chunk,
    Draw,
    WorkUnit,
    batch_cuts,
    draw_jets,
    jets_per_pass,
    ordered_units,
    spread_jets,
    training_units,
    unit_order,
)

Jet = tuple[int, int]  # chunk, jet in the chunk


@st.composite
def indices(draw, min_jets=0):
    """Draw files of one or several classes, with empty chunks among them."""
    sizes = draw(
        st.lists(st.tuples(st.integers(min_jets, 40), st.sampled_from("abc")), min_size=1, max_size=12)
    )
    return [Chunk(n, 0, 50, size, float(size), stratum) for n, (size, stratum) in enumerate(sizes)]


def jets_of(unit: WorkUnit, index, seed=0, *, shuffled=True) -> list[Jet]:
    """Do what a reading process does, with names instead of jets."""
    jets: list[Jet] = []
    for draw in unit.draws:
        if shuffled:
            taken = draw_jets(draw, index[draw.chunk].num_jets, seed, unit.pass_number)
        else:
            taken = np.arange(draw.first, draw.last)
        jets += [(draw.chunk, int(jet)) for jet in taken]
    if shuffled:
        jets = [jets[i] for i in unit_order(unit, seed)]
    return jets[unit.first : unit.last]


def stream(index, num_jets, **options) -> list[Jet]:
    """Return the first jets of a rank's stream."""
    jets: list[Jet] = []
    for unit in training_units(index, seed=0, **options):
        jets += jets_of(unit, index)
        if len(jets) >= num_jets:
            break
    return jets[:num_jets]


def all_jets(index) -> Counter[Jet]:
    return Counter((n, jet) for n, chunk in enumerate(index) for jet in range(chunk.num_jets))


@given(indices(), st.integers(1, 60))
def test_every_jet_comes_once_per_pass(index, unit_jets):
    per_pass, left_out = jets_per_pass(index)
    assert (per_pass, left_out) == (sum(chunk.num_jets for chunk in index), 0)
    jets = stream(index, 3 * per_pass, unit_jets=unit_jets)
    for pass_number in range(3):
        assert Counter(jets[pass_number * per_pass : (pass_number + 1) * per_pass]) == all_jets(index)


@given(indices(min_jets=1), st.integers(1, 60), st.integers(1, 5))
def test_ranks_are_disjoint_and_have_equally_many_jets(index, unit_jets, world_size):
    per_rank, left_out = jets_per_pass(index, world_size)
    assert 0 <= left_out < world_size
    assert per_rank * world_size + left_out == all_jets(index).total()
    ranks = [
        stream(index, per_rank, unit_jets=unit_jets, world_size=world_size, rank=rank)
        for rank in range(world_size)
    ]
    assert {len(jets) for jets in ranks} == {per_rank}
    used = Counter(jet for jets in ranks for jet in jets)
    assert used <= all_jets(index)
    assert used.total() == per_rank * world_size


def test_the_remainder_differs_between_passes():
    index = [Chunk(0, 0, 50, 50, 50.0, "a")]
    left_out = []
    for pass_number in range(6):
        used = set()
        for rank in range(3):
            jets = stream(index, 16 * (pass_number + 1), unit_jets=20, world_size=3, rank=rank)
            used |= set(jets[-16:])
        left_out.append(frozenset(all_jets(index)) - used)
    assert {len(jets) for jets in left_out} == {2}
    assert len(set(left_out)) > 1


@given(indices(min_jets=1), st.integers(1, 60), st.integers(1, 9), st.integers(1, 3), st.data())
def test_resuming_at_any_batch_continues_the_stream(index, unit_jets, batch_size, world_size, data):
    per_rank, _ = jets_per_pass(index, world_size)
    if per_rank == 0:
        return
    batch = data.draw(st.integers(0, 3 * per_rank // batch_size))
    rank = data.draw(st.integers(0, world_size - 1))
    options = {"unit_jets": unit_jets, "world_size": world_size, "rank": rank}
    whole = stream(index, 4 * per_rank, **options)
    skip = batch * batch_size
    assert stream(index, len(whole) - skip, first_jet=skip, **options) == whole[skip:]
    first = next(training_units(index, seed=0, first_jet=skip, **options))
    assert first.position == skip


@given(st.integers(0, 1000), st.integers(1, 50), st.integers(1, 20))
def test_units_are_cut_where_batches_end(position, length, batch_size):
    unit = WorkUnit(0, 0, (), first=3, last=3 + length, position=position)
    cuts = batch_cuts(unit, batch_size)
    assert [begin for begin, _ in cuts] == [0, *(end for _, end in cuts[:-1])]
    assert cuts[-1][1] == length
    assert all((position + end) % batch_size == 0 for _, end in cuts[:-1])
    assert all(0 < end - begin <= batch_size for begin, end in cuts)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.integers(20, 400), st.integers(0, 9))
def test_each_unit_has_its_share_of_every_class(num_chunks, unit_jets, seed):
    index = [
        Chunk(0, 0, 30, 30, 30.0, str(stratum))
        for stratum, chunks in enumerate(num_chunks)
        for _ in range(chunks)
    ]
    total, _ = jets_per_pass(index)
    units = []
    for unit in training_units(index, seed=seed, unit_jets=unit_jets):
        if unit.pass_number > 0:
            break
        units.append(unit)
    for stratum, chunks in enumerate(num_chunks):
        share = 30 * chunks / len(units)
        for unit in units:
            jets = [draw for draw in unit.draws if index[draw.chunk].stratum == str(stratum)]
            assert abs(sum(draw.last - draw.first for draw in jets) - share) <= 0.2 * share + 1
    assert sum(len(unit) for unit in units) == total


def test_chunks_of_equal_classes_are_read_once():
    index = [Chunk(f, s, s + 100, 100, 100.0, str(f)) for f in range(10) for s in range(0, 2000, 100)]
    reads = Counter(
        draw.chunk
        for unit in islice(training_units(index, seed=1, unit_jets=2000), 10)
        for draw in unit.draws
    )
    assert set(reads.values()) == {1}
    assert len(reads) == len(index)


@pytest.mark.parametrize(
    "num_chunks",
    [[10] * 9 + [100], [1] * 9 + [1000], [50, 50], [7, 20, 300]],
    ids=lambda counts: str(sum(counts)),
)
def test_chunks_are_not_read_much_more_than_once(num_chunks):
    index = [
        Chunk(0, 0, 50, 50, 50.0, str(stratum))
        for stratum, chunks in enumerate(num_chunks)
        for _ in range(chunks)
    ]
    reads = 0
    for unit in training_units(index, seed=0, unit_jets=100):
        if unit.pass_number > 0:
            break
        reads += len(unit.draws)
    assert reads <= 2 * len(index)


def test_passes_and_seeds_have_orders_of_their_own():
    index = [Chunk(0, 0, 100, 100, 100.0, "a"), Chunk(1, 0, 100, 100, 100.0, "b")]
    jets = stream(index, 400, unit_jets=50)
    assert jets[:200] != jets[200:]
    other = next(training_units(index, seed=1, unit_jets=50))
    assert jets_of(other, index, seed=1)[:50] != jets[:50]


@given(indices(), st.integers(1, 60), st.integers(1, 4))
def test_ordered_units_keep_the_order_and_lose_nothing(index, unit_jets, world_size):
    jets = [
        jet
        for rank in range(world_size)
        for unit in ordered_units(index, unit_jets=unit_jets, world_size=world_size, rank=rank)
        for jet in jets_of(unit, index, shuffled=False)
    ]
    assert jets == sorted(all_jets(index))


@given(indices(), st.integers(1, 60), st.integers(1, 4), st.integers(1, 300))
def test_a_limited_number_of_jets_is_the_same_for_any_number_of_ranks(index, unit_jets, world_size, max_jets):
    def jets(size):
        return [
            jet
            for rank in range(size)
            for unit in ordered_units(
                index, unit_jets=unit_jets, world_size=size, rank=rank, max_jets=max_jets
            )
            for jet in jets_of(unit, index, shuffled=False)
        ]

    found, available = jets(world_size), all_jets(index)
    assert found == jets(1) == sorted(set(found))
    assert set(found) <= set(available)
    assert len(found) == min(max_jets, len(available))
    for stratum in "abc":
        share = sum(chunk.num_jets for chunk in index if chunk.stratum == stratum) / max(len(available), 1)
        of_stratum = sum(index[chunk].stratum == stratum for chunk, _ in found)
        assert abs(of_stratum - share * len(found)) < 1 + 1e-9


def test_a_limited_number_of_jets_is_spread_over_files_without_reading_them_all():
    index = [Chunk(n, 0, 100, 100, 100.0, "ab"[n % 2]) for n in range(2000)]
    kept = np.array(spread_jets(index, 200))
    chunks = np.flatnonzero(kept[::2])
    assert kept[::2].sum() == kept[1::2].sum() == 100
    assert len(chunks) == 15  # sixteen shares of seven jets, the last ones of which are not needed
    assert np.diff(chunks).max() < 2 * 1000 / 15
    many = np.array(spread_jets(index, 20_000))
    assert np.count_nonzero(many) == 200  # whole chunks
    assert np.diff(np.flatnonzero(many)).max() < 40


@given(st.lists(st.floats(0, 3), min_size=1, max_size=30), st.integers(0, 20))
def test_sampling_takes_each_jet_as_often_as_its_weight_says(weights, pass_number):
    weights = np.array(weights)
    num_drawn = int(weights.sum())
    if num_drawn == 0:
        return
    jets = draw_jets(Draw(0, num_drawn, 0, num_drawn), weights, 0, pass_number)
    expected = weights * num_drawn / weights.sum()
    times = np.bincount(jets, minlength=len(weights))
    assert times.sum() == num_drawn
    assert np.all(times >= np.floor(expected - 1e-9))
    assert np.all(times <= np.ceil(expected + 1e-9))


def test_sampled_passes_have_the_expected_number_of_jets():
    random = np.random.default_rng(0)
    index = [
        Chunk(0, 0, 99, 99, float(w), s) for w, s in zip(random.uniform(0, 30, 20), "ab" * 10, strict=True)
    ]
    per_pass, _ = jets_per_pass(index)
    assert per_pass == int(sum(chunk.expected for chunk in index))
    taken: Counter[int] = Counter()
    for unit in training_units(index, seed=0, unit_jets=50):
        if unit.pass_number == 200:
            break
        for draw in unit.draws:
            taken[draw.chunk] += draw.last - draw.first
    for number, chunk in enumerate(index):
        assert taken[number] / 200 == pytest.approx(chunk.expected, abs=0.2)


def test_no_jets_give_no_units():
    assert list(training_units([Chunk(0, 0, 5, 0, 0.0, "a")], seed=0, unit_jets=5)) == []
    assert list(ordered_units([], unit_jets=5)) == []


def test_a_pass_of_100_million_jets_is_planned_at_once():
    """As in JetClass: ten classes, 1 000 files, each of ten chunks; also where a run resumes in a later pass."""
    index = [
        Chunk(file, start, start + 10_000, 10_000, 10_000.0, f"/{file // 100}")
        for file in range(1_000)
        for start in range(0, 100_000, 10_000)
    ]
    started = time.process_time()
    unit = next(training_units(index, seed=1, unit_jets=32_768, first_jet=390_000_000))
    assert time.process_time() - started < 2  # 0.04 s, if nothing is quadratic
    assert (unit.pass_number, unit.position) == (3, 390_000_000)
    assert len(unit.draws) == 10
