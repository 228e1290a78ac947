"""Many small files: each is parsed once, in little memory and with few descriptors."""

import os
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import uproot
from test_faults import in_child

from jets import make_jets
from partt.data.config.data_config import load_data_config
from partt.data.files import root_reading, root_trees
from partt.data.files.cache import FILE_CACHE, MAX_SHAPE_BYTES
from partt.data.files.lists import expand_files
from partt.data.files.root_tree_shapes import TreeShapes
from partt.data.files.root_trees import parse_tree
from partt.data.files.tables import inspect_file, read_columns, write_table
from partt.data.reading.batches import training_batches
from partt.errors import DataError
from partt.training.job import open_job
from training_jobs import tiny_recipe

VECTOR_LAYOUT = Path(__file__).parents[1] / "fixtures" / "jetclass_vector_layout.root"
NUM_FILES = 150
BYTES_PER_FILE = 4000  # of memory: the cache then has room for 16 000 files
FEW_DESCRIPTORS = 25  # beside those that the process has


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    contents = []
    for seed in range(5):
        write_table(folder / "one.root", make_jets(2, seed=seed))
        contents.append((folder / "one.root").read_bytes())
    (folder / "one.root").unlink()
    for number in range(NUM_FILES):
        (folder / f"{number}.root").write_bytes(contents[number % 5])
    return folder


def open_small_files(folder):
    config = load_data_config("jetclass_full")
    return open_job(tiny_recipe(), config, expand_files([f"{folder}/*.root"]), 0.25, seed=1)


def limit_descriptors(more):
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, used + more))


@contextmanager
def exit_by_error(text):
    """End the process with 0 if the block raises a DataError with this text."""
    try:
        yield
    except DataError as error:
        os._exit(0 if text in str(error) else 1)
    os._exit(2)


def read_all(folder):
    limit_descriptors(FEW_DESCRIPTORS)
    FILE_CACHE.trees.clear()
    FILE_CACHE.trees.max_bytes = NUM_FILES * BYTES_PER_FILE
    parsed = []
    original = root_reading.parse_tree

    def counted(url, *others):
        parsed.append(url)
        return original(url, *others)

    root_reading.parse_tree = counted
    job = open_small_files(folder)
    stream = training_batches(job.train, job.train_index, batch_size=16, seed=1)
    for _ in range(2 * job.train_index.num_jets // 16):  # two passes
        next(stream)
    os._exit(0 if len(parsed) == len(set(parsed)) == NUM_FILES else 1)


def test_every_file_is_parsed_once_with_few_descriptors(small_files):
    child = in_child(read_all, small_files)
    child.join(120)
    assert child.exitcode == 0


def read_with_too_many_readers(folder):
    torch.set_num_threads(1)
    job = open_small_files(folder)
    limit_descriptors(12)
    stream = training_batches(job.train, job.train_index, batch_size=16, seed=1, num_workers=12)
    with exit_by_error("use fewer with --workers"):
        next(stream)


def test_more_readers_than_descriptors_is_a_clear_error(small_files):
    child = in_child(read_with_too_many_readers, small_files)
    child.join(120)
    assert child.exitcode == 0


def test_trees_with_and_without_baskets_are_packed_alike(tmp_path):
    tables = [make_jets(7, seed=seed) for seed in range(3)]
    write_table(tmp_path / "three.root", tables)
    write_table(tmp_path / "empty.root", make_jets(0))
    for name, num_entries in (("three.root", 21), ("empty.root", 0)):
        url = str(tmp_path / name)
        branches = list(inspect_file(url).branches)
        found = read_columns(url, ["jet_pt", "part_px"])
        assert branches == list(inspect_file(url).branches)
        assert len(found["jet_pt"]) == num_entries
        if num_entries:
            np.testing.assert_array_equal(found["jet_pt"], np.concatenate([t["jet_pt"] for t in tables]))


def found_in(url, shapes):
    """Return all that was found in a tree, or the type of the error."""
    try:
        parsed = parse_tree(str(url), None, shapes)
    except Exception as error:  # noqa: BLE001 - `with_retries` turns each into a DataError
        return type(error)
    info, layouts = parsed.info, parsed.layouts
    branches = {name: getattr(layouts[name], "dtype", None) for name in layouts.kinds}
    numbers = layouts.numbers.tolist(), layouts.starts.tolist(), parsed.boundaries
    return info.num_entries, info.branches, info.identity, layouts.kinds, branches, numbers


def count_parsed(monkeypatch):
    """Return a list that gets an item whenever a tree is parsed with uproot."""
    parsed = []
    original = root_trees._parse_ttree
    monkeypatch.setattr(root_trees, "_parse_ttree", lambda tree: parsed.append(tree) or original(tree))
    return parsed


def test_trees_of_equal_shape_are_parsed_once_and_read_as_uproot_does(tmp_path, monkeypatch):
    """Files of another number of jets, of other baskets, other branches and other names."""
    tables = {
        "two": make_jets(2, seed=1),
        "three": make_jets(3, seed=2),
        "none": make_jets(0),
        "baskets": [make_jets(2, seed=seed) for seed in range(3)],
        "one_more": make_jets(2, seed=3) | {"jet_extra": np.zeros(2, np.float32)},
        "other_type": make_jets(2, seed=4) | {"jet_pt": np.array([600, 700], np.int32)},
    }
    for name, table in tables.items():
        write_table(tmp_path / f"{name}.root", table)
    (tmp_path / "vectors.root").write_bytes(VECTOR_LAYOUT.read_bytes())
    (tmp_path / "vectors_again.root").write_bytes(VECTOR_LAYOUT.read_bytes())
    files = sorted(tmp_path.glob("*.root"))
    expected = {file: found_in(file, TreeShapes(0)) for file in files}
    shapes = TreeShapes(MAX_SHAPE_BYTES)
    for file in (*files, *files[::-1]):
        assert found_in(file, shapes) == expected[file]
    with_uproot = count_parsed(monkeypatch)
    for name in ("three", "two", "three", "vectors", "vectors_again"):
        found_in(tmp_path / f"{name}.root", shapes)
    assert len(with_uproot) <= 2


def test_damaged_trees_give_the_same_with_and_without_a_shape(tmp_path):
    """And they leave no trace: uproot itself would read the next file with classes that a damaged one had."""
    expected = found_in(VECTOR_LAYOUT, TreeShapes(0))
    write_table(tmp_path / "good.root", make_jets(2, seed=1))
    shapes = TreeShapes(MAX_SHAPE_BYTES)
    found_in(tmp_path / "good.root", shapes)
    good = np.fromfile(tmp_path / "good.root", np.uint8)
    with uproot.open(tmp_path / "good.root") as file:
        key = file.key("tree")
    random = np.random.default_rng(3)
    for _ in range(40):
        content = good.copy()
        places = random.integers(key.fSeekKey, key.fSeekKey + key.fNbytes, random.integers(1, 4))
        content[places] = random.integers(0, 256, len(places))
        content.tofile(tmp_path / "damaged.root")
        assert found_in(tmp_path / "damaged.root", shapes) == found_in(
            tmp_path / "damaged.root", TreeShapes(0)
        )
        assert found_in(VECTOR_LAYOUT, TreeShapes(0)) == expected
