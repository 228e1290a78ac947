"""Training and validation parts of the same files."""

from dataclasses import replace

import numpy as np
import pytest

from jets import write_jets
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.reading.batches import ordered_batches
from partt.data.reading.jet_index import build_index, build_indexes
from partt.data.reading.jet_source import open_source
from partt.data.reading.splitting import Split


def test_parts_are_disjoint_complete_and_of_the_right_size():
    entries = np.arange(100_000)
    train = Split("train", 0.2, 1).contains("/a/jets.root", entries)
    validation = Split("validation", 0.2, 1).contains("/a/jets.root", entries)
    assert np.array_equal(train, ~validation)
    assert validation.mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / len(entries)))
    halves = validation[::2].mean(), validation[1::2].mean()
    assert halves == pytest.approx((0.2, 0.2), abs=0.01)


def test_the_part_of_an_entry_depends_on_seed_file_and_entry_only():
    entries = np.arange(1000)
    part = Split("validation", 0.5, 1).contains("/a/jets.root", entries)
    assert np.array_equal(part, Split("validation", 0.5, 1).contains("root://host//b/jets.root", entries))
    assert np.array_equal(part[500:], Split("validation", 0.5, 1).contains("/a/jets.root", entries[500:]))
    for other in (
        Split("validation", 0.5, 2).contains("/a/jets.root", entries),
        Split("validation", 0.5, 1).contains("/a/more.root", entries),
    ):
        assert 0.4 < (part == other).mean() < 0.6


@pytest.mark.parametrize("selection", [None, "jet_nparticles > 10"])
@pytest.mark.parametrize("with_cache", [False, True])
def test_every_selected_jet_is_read_in_exactly_one_part(tmp_path, selection, with_cache):
    files = [InputFile("", str(write_jets(tmp_path / f"{n}.root", 200, seed=n))) for n in range(2)]
    config = load_data_config("jetclass_kin").replace(selection=selection)
    source = open_source(files, config, cache=tmp_path / "cache" if with_cache else None)

    def jets(part):
        index = build_index(part)
        found = [
            (int(file), int(entry))
            for batch in ordered_batches(part, index, batch_size=64)
            for file, entry in zip(batch.source_file, batch.source_entry, strict=True)
        ]
        assert len(found) == index.num_jets == index.class_counts.sum()
        return found

    train, validation = (jets(replace(source, split=Split(p, 0.3, 5))) for p in ("train", "validation"))
    assert not set(train) & set(validation)
    assert sorted(train + validation) == sorted(jets(source))
    assert train
    assert validation
    parts = [replace(source, split=Split(part, 0.3, 5)) for part in ("train", "validation")]
    for together, part in zip(build_indexes(parts), parts, strict=True):
        assert together.chunks == build_index(part).chunks
