"""Reading and writing ROOT and parquet: every layout gives the same columns as uproot's own reader."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

from partt.data.files import access as file_access
from partt.data.files import root_reading
from partt.data.files.cache import FILE_CACHE, LRUCache
from partt.data.files.info import make_chunks
from partt.data.files.root_baskets import MissingOffsetsError
from partt.data.files.tables import inspect_file, read_columns, read_note, write_table
from partt.data.jagged import Column, Jagged, Table, to_awkward
from partt.errors import DataError, OutputError

VECTOR_LAYOUT = Path(__file__).parents[1] / "fixtures" / "jetclass_vector_layout.root"


def jet_table(num_jets: int, seed: int = 1) -> dict[str, Column]:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 5, num_jets))]).astype(np.int64)
    total = int(offsets[-1])
    return {
        "part_px": Jagged(rng.normal(size=total).astype(np.float32), offsets),
        "part_charge": Jagged(rng.integers(-1, 2, total).astype(np.int32), offsets),
        "jet_pt": rng.uniform(500, 1000, num_jets).astype(np.float32),
        "label_QCD": rng.integers(0, 2, num_jets).astype(bool),
        "event": np.arange(num_jets, dtype=np.int64),
    }


def assert_same(left: Table, right: Table) -> None:
    assert set(left) == set(right)
    for name in left:
        assert to_awkward(left[name]).to_list() == to_awkward(right[name]).to_list(), name


def assert_like_uproot(path: Path, names: list[str], start: int, stop: int | None) -> None:
    columns = read_columns(str(path), names, start, stop)
    with uproot.open(path) as file:
        expected = file["tree"].arrays(names, entry_start=start, entry_stop=stop)
    assert list(columns) == names
    for name, column in columns.items():
        values = column.contents if isinstance(column, Jagged) else column
        assert values.dtype.isnative
        assert values.dtype == np.dtype(str(ak.type(expected[name]).content).rpartition(" ")[2])
        assert ak.to_list(to_awkward(column)) == ak.to_list(expected[name])
        if isinstance(column, Jagged):
            assert column.offsets.dtype == np.int64
            assert column.offsets[0] == 0
            assert column.offsets[-1] == len(column.contents)


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 0), (30, 30), (7, 8), (1, 29)])
def test_vectors_written_by_root(start: int, stop: int | None) -> None:
    names = list(inspect_file(str(VECTOR_LAYOUT)).branches)
    assert_like_uproot(VECTOR_LAYOUT, names, start, stop)


def test_what_a_file_holds() -> None:
    info = inspect_file(str(VECTOR_LAYOUT), max_chunk=15)
    assert (info.tree, info.num_entries, info.chunks) == ("tree", 30, ((0, 15), (15, 30)))
    assert {info.branches[name] for name in ("part_px", "part_isPhoton", "label_Hbb", "label_Zqq")} == {
        "float32[]",
        "int32[]",
        "bool",
        "int32",
    }


def test_columns_of_equal_lengths_share_their_offsets() -> None:
    columns = read_columns(str(VECTOR_LAYOUT), ["part_px", "part_charge", "part_isMuon"], 3, 9)
    assert columns["part_px"].offsets is columns["part_charge"].offsets is columns["part_isMuon"].offsets


def test_columns_of_other_lengths_keep_their_own(tmp_path: Path) -> None:
    table = {
        "part_a": Jagged(np.ones(3, np.float32), np.array([0, 1, 3])),
        "part_b": Jagged(np.ones(3, np.float32), np.array([0, 2, 3])),
    }
    write_table(tmp_path / "x.root", table)
    columns = read_columns(str(tmp_path / "x.root"), ["part_a", "part_b"])
    assert columns["part_a"].lengths.tolist() == [1, 2]
    assert columns["part_b"].lengths.tolist() == [2, 1]


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD", "LZMA", None])
def test_compressions_and_number_types(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "x.root"
    types = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
    rows = {name: np.arange(100).astype(name) for name in types}
    rows["flag"] = np.arange(100) % 3 == 0
    rows["fixed"] = np.arange(300, dtype=np.float32).reshape(100, 3)
    rows["list"] = ak.unflatten(np.arange(300.0), [0, 6] * 50)
    with uproot.recreate(path, compression=compression and getattr(uproot, compression)(1)) as file:
        tree = file.mktree("tree", {name: ak.Array(values).type.content for name, values in rows.items()})
        tree.extend(rows)
        tree.extend({name: values[:7] for name, values in rows.items()})
    for start, stop in ((0, None), (99, 101), (100, 107), (5, 5)):
        assert_like_uproot(path, list(rows), start, stop)
    assert inspect_file(str(path), max_chunk=60).chunks == ((0, 50), (50, 107))
    assert inspect_file(str(path)).branches["fixed"] == "float32[]"


def test_rntuple(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    rows = {"part_px": ak.Array([[1.0, 2.0], [], [3.0]]), "n": np.array([1, 2, 3], np.int32)}
    rows |= {"flag": np.array([True, False, True]), "text": ak.Array(["a", "b", "c"])}
    rows |= {"fixed": np.ones((3, 2), np.float32)}
    with uproot.recreate(path) as file:
        ntuple = file.mkrntuple("tree", rows)
        ntuple.extend(rows)
    info = inspect_file(str(path), max_chunk=4)
    assert (info.num_entries, info.chunks) == (6, ((0, 3), (3, 6)))
    assert {name: info.branches[name] for name in ("part_px", "n", "flag", "fixed")} == {
        "part_px": "float64[]",
        "n": "int32",
        "flag": "bool",
        "fixed": "float32[]",
    }
    for start, stop in ((0, None), (2, 5), (4, 4)):
        assert_like_uproot(path, ["part_px", "n", "flag", "fixed"], start, stop)
    with pytest.raises(DataError, match="branch 'text' has type string"):
        read_columns(str(path), ["text"])


def test_branches_that_are_not_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    with uproot.recreate(path) as file:
        file.mktree("tree", {"name": "string", "x": "int32"}).extend(
            {"name": ak.Array(["a", "b"]), "x": np.array([1, 2], np.int32)}
        )
    assert read_columns(str(path), ["x"])["x"].tolist() == [1, 2]
    with pytest.raises(DataError, match=r"branch 'name' has type .*only numbers"):
        read_columns(str(path), ["name"])


def test_baskets_without_offsets_are_left_to_uproot(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["part_px", "jet_pt"]
    expected = read_columns(str(VECTOR_LAYOUT), names, 2, 20)

    def refuse(*_args: object, **_options: object) -> Column:
        raise MissingOffsetsError

    monkeypatch.setattr(root_reading, "decode", refuse)
    assert_same(read_columns(str(VECTOR_LAYOUT), names, 2, 20), expected)


@pytest.mark.parametrize(("gap", "most"), [(0, 10**9), (10**9, 10**9), (10**9, 5000), (-1, 0)])
def test_how_requests_are_joined_does_not_matter(
    gap: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(inspect_file(str(VECTOR_LAYOUT)).branches)
    expected = read_columns(str(VECTOR_LAYOUT), names, 2, 20)
    monkeypatch.setattr(file_access, "MERGE_GAP", gap)
    monkeypatch.setattr(file_access, "MAX_REQUEST", most)
    assert_same(read_columns(str(VECTOR_LAYOUT), names, 2, 20), expected)


def test_newest_cycle_wins(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    with uproot.recreate(path) as file:
        for value in (1, 2):
            file.mktree("tree", {"x": "int32"}).extend({"x": np.array([value], np.int32)})
    assert inspect_file(str(path)).tree == "tree"
    assert read_columns(str(path), ["x"])["x"].tolist() == [2]


def test_a_cycle_is_read_if_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    with uproot.recreate(path) as file:
        for value in (1, 2):
            file.mktree("deep/tree", {"x": "int32"}).extend({"x": np.array([value], np.int32)})
    for tree, value in (("deep/tree;1", 1), ("deep/tree", 2), ("deep/tree;2", 2), ("/deep/tree;1", 1)):
        info = inspect_file(str(path), tree)
        assert info.tree == tree.strip("/")
        for name in (tree, info.tree):
            assert read_columns(str(path), ["x"], tree=name)["x"].tolist() == [value]
    for cycle in ("7", "x", "01"):
        with pytest.raises(DataError, match="cycles in the file: deep/tree;1, deep/tree;2"):
            read_columns(str(path), ["x"], tree=f"deep/tree;{cycle}")


def test_tree_in_a_folder_and_odd_file_name(tmp_path: Path) -> None:
    path = tmp_path / "odd:name 1.root"
    with uproot.recreate(path.open("w+b")) as file:
        file.mktree("deep/events", {"x": "int32"}).extend({"x": np.array([5], np.int32)})
    assert inspect_file(str(path)).tree == "deep/events"
    assert read_columns(str(path), ["x"])["x"].tolist() == [5]


def test_parquet(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    table = jet_table(10)
    columns = {name: pa.array(ak.to_list(to_awkward(column))) for name, column in table.items()}
    columns["part_px"] = columns["part_px"].cast(pa.list_(pa.float32()))
    columns["text"] = pa.array(list("abcdefghij"))
    pa.parquet.write_table(pa.table(columns), path, row_group_size=4)
    info = inspect_file(path, max_chunk=5)
    assert (info.tree, info.num_entries, info.chunks) == ("", 10, ((0, 4), (4, 8), (8, 10)))
    assert (info.branches["part_px"], info.branches["label_QCD"]) == ("float32[]", "bool")
    for start, stop in ((0, 10), (3, 9), (4, 4), (9, 10)):
        columns = read_columns(path, list(table), start, stop)
        assert_same(columns, {name: _cut(column, start, stop) for name, column in table.items()})
        assert columns["part_px"].offsets is columns["part_charge"].offsets
    with pytest.raises(DataError, match=r"has no branch 'part_pq' \(did you mean 'part_px'\?\)"):
        read_columns(path, ["part_pq"])
    with pytest.raises(DataError, match="branch 'text' has type string"):
        read_columns(path, ["text"])


@pytest.mark.parametrize("values", [[1, 2, None], [[1], [2], None], [[1], [2], [None, 3]]])
def test_missing_values_in_parquet(tmp_path: Path, values: list[object]) -> None:
    path = str(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({"x": values}), path)
    with pytest.raises(DataError) as raised:
        read_columns(path, ["x"], 1, 3)
    assert str(raised.value) == (
        f"{path}: column 'x' has 1 missing values (nulls) in entries 1 to 3; "
        "fill or drop them when writing the file"
    )
    assert len(read_columns(path, ["x"], 0, 2)["x"]) == 2


def test_a_row_group_is_decoded_once_for_all_its_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({"x": range(100), "y": range(100)}), path, row_group_size=50)
    info = inspect_file(path, max_chunk=15)
    decoded = []
    whole = pa.parquet.ParquetFile.read_row_group

    def read_row_group(file: pa.parquet.ParquetFile, group: int, **options: object) -> pa.Table:
        decoded.append(group)
        return whole(file, group, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "read_row_group", read_row_group)
    values = [read_columns(path, ["x"], *chunk, identity=info.identity)["x"] for chunk in info.chunks]
    assert np.concatenate(values).tolist() == list(range(100))
    assert len(info.chunks) == 6
    assert decoded == [0, 1]
    assert read_columns(path, ["y"], 45, 60)["y"].tolist() == list(range(45, 60))  # other columns: anew
    pa.parquet.write_table(pa.table({"x": range(100, 300)}), path, row_group_size=50)
    assert read_columns(path, ["x"], 3, 5)["x"].tolist() == [103, 104]


def test_row_groups_that_are_read_whole_are_not_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    pa.parquet.write_table(pa.table({"x": range(100)}), path, row_group_size=50)
    FILE_CACHE.row_groups.clear()
    read_columns(path, ["x"])
    assert len(FILE_CACHE.row_groups) == 0


def _cut(column: Column, start: int, stop: int) -> Column:
    if not isinstance(column, Jagged):
        return column[start:stop]
    edges = column.offsets[start : stop + 1]
    return Jagged(column.contents[edges[0] : edges[-1]], edges - edges[0])


@pytest.mark.parametrize("suffix", ["root", "parquet"])
@pytest.mark.parametrize("num_jets", [0, 1, 99, 100, 101])
def test_written_tables_come_back(tmp_path: Path, num_jets: int, suffix: str) -> None:
    path = tmp_path / "deep" / f"x.{suffix}"
    table = jet_table(num_jets)
    assert write_table(path, table) == num_jets
    columns = read_columns(str(path), list(table))
    assert_same(columns, table)
    assert all(_dtype(columns[name]) == _dtype(table[name]) for name in table)
    assert sum(stop - start for start, stop in inspect_file(str(path), max_chunk=100).chunks) == num_jets


def _dtype(column: Column) -> np.dtype:
    return column.contents.dtype if isinstance(column, Jagged) else column.dtype


def test_written_as_a_ttree_with_one_counter_and_lz4(tmp_path: Path) -> None:
    write_table(tmp_path / "x.root", jet_table(5), tree="jets")
    with uproot.open(tmp_path / "x.root") as file:
        assert file.classnames() == {"jets;1": "TTree"}
        assert isinstance(file.file.compression, uproot.LZ4)
        assert sorted(file["jets"].keys()) == sorted(["npart", *jet_table(5)])


def test_tables_are_written_as_they_come(tmp_path: Path) -> None:
    made = []

    def tables() -> Iterator[Table]:
        for i, num_jets in enumerate((3, 0, 70, 1)):
            made.append(i)
            yield jet_table(num_jets, seed=i)

    path = tmp_path / "x.root"
    assert write_table(path, tables()) == 74
    assert made == [0, 1, 2, 3]
    assert read_columns(str(path), ["event"])["event"].tolist() == [0, 1, 2, *range(70), 0]
    assert_same(read_columns(str(path), list(jet_table(1)), 3, 73), jet_table(70, seed=2))


def test_a_failure_while_writing_leaves_no_file(tmp_path: Path) -> None:
    def tables() -> Iterator[Table]:
        yield jet_table(3)
        raise RuntimeError("generator failed")

    with pytest.raises(RuntimeError, match="generator failed"):
        write_table(tmp_path / "x.root", tables())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="nothing to write"):
        write_table(tmp_path / "x.root", [])


def jagged(*lengths: int, dtype: type = np.float32) -> Jagged:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Jagged(np.zeros(offsets[-1], dtype), offsets)


FIRST_TABLE = {"part_a": jagged(1, 2), "part_b": jagged(1, 2), "x": np.array([1, 2], np.int32)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "column 'x' of the first table is missing"),
        ({"y": np.ones(2)}, "column 'y' is not in the first table"),
        ({"part_c": jagged(1, 2)}, "column 'part_c' is not in the first table"),
        ({"x": np.array([1.7, 2.9])}, "column 'x' is float64, in the first table int32; convert it"),
        ({"x": np.ones((2, 3), np.int32)}, r"column 'x' is int32\[3\], in the first table int32"),
        ({"x": jagged(1, 2, dtype=np.int32)}, r"column 'x' is int32\[\], in the first table int32"),
        ({"part_b": np.ones(2, np.float32)}, r"column 'part_b' is float32, in the first table float32\[\]"),
        ({"part_a": jagged(1, 2, dtype=float)}, r"column 'part_a' is float64\[\], in the first"),
        ({"x": np.array([1], np.int32)}, "column 'x' has 1 jets, column 'part_a' has 2"),
        ({"part_b": jagged(1, 2, 3)}, "column 'part_b' has 3 jets, column 'part_a' has 2"),
        ({"part_b": jagged(1, 3)}, "columns 'part_a' and 'part_b' share a counter, but jet 1 has 2 and 3"),
    ],
)
def test_a_table_unlike_the_first_is_refused(
    tmp_path: Path, changes: dict[str, Column | None], message: str
) -> None:
    later = {name: column for name, column in (FIRST_TABLE | changes).items() if column is not None}
    with pytest.raises(DataError, match=rf"cannot write .*x\.root: table 3: {message}"):
        write_table(tmp_path / "x.root", [FIRST_TABLE, FIRST_TABLE, later])
    assert list(tmp_path.iterdir()) == []


def test_a_first_table_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="table 1: column 'y' has 3 jets, column 'x' has 2"):
        write_table(tmp_path / "x.root", {"x": np.ones(2), "y": np.ones(3)})
    with pytest.raises(DataError, match="nothing to write"):
        write_table(tmp_path / "x.root", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["root", "parquet", "pq"])
def test_the_suffix_decides_the_format_and_notes_come_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    events: list[str] = []

    def tables() -> Iterator[Table]:
        for seed in (1, 2):
            yield jet_table(3, seed)
        events.append("tables")

    def note() -> str:
        events.append("note")
        return "made by a test"

    assert write_table(path, tables(), note=note) == 6
    assert events == ["tables", "note"]
    assert read_note(str(path)) == "made by a test"
    assert path.read_bytes()[:4] == (b"root" if suffix == "root" else b"PAR1")
    write_table(path, jet_table(3))
    assert read_note(str(path)) is None
    with pytest.raises(DataError, match="table 2: column 'x' is float64, in the first table int32; convert"):
        write_table(path, [{"x": np.array([1], np.int32)}, {"x": np.ones(1)}])
    assert len(read_columns(str(path), ["event"])["event"]) == 3  # the old file


def test_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot write .*file/x\.root"):
        write_table(tmp_path / "file" / "x.root", jet_table(3))


def run_python(script: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_disk_full(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from partt.data.files.tables import write_table
from partt.errors import OutputError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
rng = np.random.default_rng(1)
try:
    write_table(sys.argv[1], ({"x": rng.normal(size=5000)} for _ in range(20)))
except OutputError as error:
    assert "cannot write" in str(error) and "x.root" in str(error), error
else:
    raise AssertionError("written in spite of the limit")
assert list(Path(sys.argv[1]).parent.iterdir()) == []
"""
    run_python(script, str(tmp_path / "x.root"))


def test_many_files_with_few_descriptors_and_forked_readers(tmp_path: Path) -> None:
    write_table(tmp_path / "x_0.root", jet_table(20))
    with uproot.recreate(tmp_path / "n_0.root") as file:
        file.mkrntuple("tree", {"event": np.arange(20)})
    for i in range(1, 499):
        kind = "n" if i % 10 == 0 else "x"
        (tmp_path / f"{kind}_{i}.root").hardlink_to(tmp_path / f"{kind}_0.root")
    script = """
import multiprocessing, os, resource, sys
from partt.data.files.tables import inspect_file, read_columns
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

def total(url):
    return sum(int(read_columns(url, ["event"], *chunk)["event"].sum()) for chunk in inspect_file(url).chunks)

os.chdir(sys.argv[1])
files = sorted(os.listdir("."))
assert len(files) == 500
assert {total(name) for name in files} == {190}
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    results = pool.map_async(total, files[:60])
    assert {total(name) for name in files[:60]} == {190}
    assert set(results.get(60)) == {190}
"""
    run_python(script, str(tmp_path))


@given(st.lists(st.integers(1, 60), max_size=20), st.integers(1, 50))
def test_chunks_cover_all_entries_in_order(sizes: list[int], max_chunk: int) -> None:
    boundaries = [0, *np.cumsum(sizes, dtype=int).tolist()]
    chunks = make_chunks(boundaries, max_chunk)
    assert [start for start, _ in chunks] + boundaries[-1:] == [0, *(stop for _, stop in chunks)]
    assert all(0 < stop - start <= 1.5 * max_chunk for start, stop in chunks)
    if max(sizes, default=0) <= max_chunk:
        assert {stop for _, stop in chunks} <= set(boundaries)


def test_remembered_trees_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FILE_CACHE.trees
    kept.clear()
    monkeypatch.setattr(kept, "max_bytes", 16_000)
    urls = [str(tmp_path / f"{i}.root") for i in range(10)]
    for url in urls:
        write_table(url, jet_table(2))
        inspect_file(url)
    memory = kept.get(urls[-1]).memory
    assert kept.num_bytes == len(kept) * memory <= 16_000 < (len(kept) + 1) * memory
    assert kept.get(urls[0]) is None
    assert kept.get(urls[-1]) is not None


def test_a_tree_is_parsed_once_under_each_name_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "x.root")
    write_table(url, jet_table(2))
    info = inspect_file(url)
    with monkeypatch.context() as patch:
        patch.setattr(root_reading, "parse_tree", None)
        for tree in (None, info.tree, info.tree):
            assert len(read_columns(url, ["event"], tree=tree)["event"]) == 2
    read_columns(url, ["event"], tree=info.tree)
    with pytest.raises(DataError, match="no tree 'other'"):
        read_columns(url, ["event"], tree="other")


def test_keeping_many_values_takes_no_longer_for_each() -> None:
    kept: LRUCache[int, str] = LRUCache(max_bytes=300_000)
    started = time.process_time()
    for i in range(50_000):
        kept.put(i, "x", 10)
    assert time.process_time() - started < 10  # a sum over all values for each would take a minute
    assert (len(kept), kept.num_bytes) == (30_000, 300_000)
    kept.get(20_000)
    kept.put(20_001, "y", 299_990)
    assert (kept.get(20_000), kept.get(20_001), len(kept)) == ("x", "y", 2)
    kept.put(0, "large", 10**9)
    assert (kept.get(0), len(kept)) == ("large", 1)
    kept.discard(0)
    kept.discard(0)
    assert (len(kept), kept.num_bytes) == (0, 0)
