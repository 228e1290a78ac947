"""Broken files: each fault is one DataError that names the file and says what is wrong."""

import os
import re
import shutil
from pathlib import Path

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import uproot

from partt.data.files.tables import AuthenticationError, inspect_file, read_columns, write_table
from partt.data.jagged import Jagged
from partt.errors import DataError

NUM_JETS = 200
BRANCHES = ["part_px", "part_py", "jet_pt", "label"]


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return make_file(tmp_path / "good.root", uproot.LZ4(4))


def make_file(path: Path, compression: object, *, is_rntuple: bool = False) -> Path:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 30, NUM_JETS)
    # Few different values, so that each algorithm finds something to compress.
    particles = rng.integers(0, 50, lengths.sum()).astype(np.float32)
    rows = {
        "part_px": ak.unflatten(particles, lengths),
        "part_py": ak.unflatten(particles + 1, lengths),
        "jet_pt": rng.integers(500, 550, NUM_JETS).astype(np.float32),
        "label": rng.integers(0, 2, NUM_JETS).astype(np.int32),
    }
    with uproot.recreate(path, compression=compression) as file:
        if is_rntuple:
            file.mkrntuple("tree", rows)
        else:
            file.mktree("tree", {name: ak.type(values).content for name, values in rows.items()}).extend(rows)
    return path


def read_all(path: Path) -> dict[str, object]:
    info = inspect_file(str(path))
    return read_columns(str(path), BRANCHES, 0, info.num_entries, identity=info.identity)


def assert_data_error(path: Path, pattern: str, kind: type[DataError] = DataError) -> None:
    """Check that inspecting and reading both fail with a message about the file."""
    for action in (lambda: inspect_file(str(path)), lambda: read_columns(str(path), BRANCHES)):
        with pytest.raises(kind, match=pattern) as raised:
            action()
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_missing(tmp_path: Path) -> None:
    assert_data_error(tmp_path / "none.root", "no such file")
    assert_data_error(tmp_path / "none.parquet", "no such file")


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "x.root").touch()
    assert_data_error(tmp_path / "x.root", r"is empty \(0 bytes\)")
    (tmp_path / "x.parquet").touch()
    assert_data_error(tmp_path / "x.parquet", "cannot read")


def test_folder(tmp_path: Path) -> None:
    assert_data_error(tmp_path, r"is a folder; give its files: .*/\*\.root")


@pytest.mark.parametrize(
    "page", ["<!DOCTYPE html><html>", "\n <html><body>Please log in", "<?xml version='1.0'?>"]
)
def test_web_page(tmp_path: Path, page: str) -> None:
    (tmp_path / "x.root").write_text(page)
    assert_data_error(tmp_path / "x.root", "web page .*login")


@pytest.mark.parametrize("content", [b"r", b"PAR1 or something else", b"\x00" * 5000])
def test_not_root(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.root").write_bytes(content)
    assert_data_error(tmp_path / "x.root", "not a ROOT file")


@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("is_rntuple", [False, True])
def test_truncated(tmp_path: Path, fraction: float, is_rntuple: bool) -> None:
    path = make_file(tmp_path / "x.root", uproot.ZLIB(1), is_rntuple=is_rntuple)
    size = path.stat().st_size
    os.truncate(path, int(size * fraction))
    assert_data_error(path, rf"truncated: {int(size * fraction)} of \d+ bytes")


def test_truncated_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pa.parquet.write_table(pa.table({name: [1.0] * 50 for name in BRANCHES}), path)
    os.truncate(path, path.stat().st_size // 2)
    assert_data_error(path, "cannot read")


def flip_in_basket(path: Path, branch: str, position: float) -> None:
    with uproot.open(path) as file:
        found = file["tree"][branch]
        seek, size = int(found.member("fBasketSeek")[0]), int(found.member("fBasketBytes")[0])
        key = found.basket(0).member("fKeylen")
    flip(path, int(seek + key + (size - key - 1) * position))


def flip(path: Path, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ 0x10]))


@pytest.mark.parametrize("position", [0.2, 0.5, 0.99])
@pytest.mark.parametrize("branch", ["part_py", "jet_pt"])
@pytest.mark.parametrize("compression", [uproot.LZ4(4), uproot.ZLIB(1)])
def test_flipped_bit_in_lz4_and_zlib(
    tmp_path: Path, compression: object, branch: str, position: float
) -> None:
    path = make_file(tmp_path / "x.root", compression)
    flip_in_basket(path, branch, position)
    info = inspect_file(str(path))
    with pytest.raises(DataError, match=rf"corrupt data in branch '{branch}', entries 0 to 200") as raised:
        read_columns(str(path), BRANCHES, 5, 10)
    assert str(path) in str(raised.value)
    assert "copy or make the file again" in str(raised.value)
    others = [name for name in BRANCHES if name != branch]
    assert len(read_columns(str(path), others, 0, info.num_entries)) == 3


def test_flipped_bit_without_a_checksum(tmp_path: Path) -> None:
    """In an uncompressed file a flipped value goes unnoticed, a flipped entry offset does not."""
    good, bad = (make_file(tmp_path / f"{name}.root", None) for name in ("good", "bad"))
    flip_in_basket(bad, "part_px", 0.1)
    before, after = read_all(good)["part_px"], read_all(bad)["part_px"]
    assert isinstance(before, Jagged)
    assert isinstance(after, Jagged)
    assert (before.contents != after.contents).sum() == 1
    assert np.array_equal(before.offsets, after.offsets)
    flip_in_basket(bad, "part_px", 0.97)
    with pytest.raises(DataError, match=r"corrupt data in branch 'part_px'.*offsets do not increase"):
        read_all(bad)


@pytest.mark.parametrize(
    ("compression", "is_rntuple"),
    [(uproot.LZ4(4), False), (uproot.ZSTD(1), False), (None, False), (uproot.LZ4(4), True), (None, True)],
)
def test_any_flipped_bit_is_an_error_or_keeps_the_shape(
    tmp_path: Path, compression: object, is_rntuple: bool
) -> None:
    """ZSTD, uncompressed and RNTuple data have no checksum that is read: values may change, lengths agree."""
    good = make_file(tmp_path / "good.root", compression, is_rntuple=is_rntuple)
    size = good.stat().st_size
    noticed = 0
    for i, byte in enumerate(np.random.default_rng(5).integers(4, size, 60).tolist()):
        bad = tmp_path / f"bad_{i}.root"
        shutil.copy(good, bad)
        flip(bad, byte)
        try:
            columns = read_all(bad)
        except DataError as error:
            assert str(bad) in str(error)  # noqa: PT017
            noticed += 1
            continue
        lengths = {len(column) for column in columns.values()}  # type: ignore[arg-type]
        assert len(lengths) == 1
    assert noticed > 0


def test_no_tree(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "x.root") as file:
        file["note"] = "hello"
    assert_data_error(tmp_path / "x.root", "has no tree; objects in the file: note")
    with uproot.recreate(tmp_path / "y.root"):
        pass
    assert_data_error(tmp_path / "y.root", "has no tree; objects in the file: none")


def test_two_trees(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    with uproot.recreate(path) as file:
        for i, name in enumerate(("events", "runs")):
            file.mktree(name, {"jet_pt": "float32"}).extend({"jet_pt": np.full(2, i, np.float32)})
    assert_data_error(path, r"has 2 trees \(events, runs\); name one, with --tree or as FILE.root:TREE")
    assert read_columns(str(path), ["jet_pt"], tree="runs")["jet_pt"].tolist() == [1, 1]
    with pytest.raises(DataError, match="has no tree 'jets'; trees in the file: events, runs"):
        inspect_file(str(path), tree="jets")


def test_missing_branch_names_the_nearest(good: Path) -> None:
    with pytest.raises(DataError) as raised:
        read_columns(str(good), ["jet_pt", "part_pz"])
    assert f"{good}: tree 'tree' has no branch 'part_pz' (did you mean 'part_p" in str(raised.value)
    with pytest.raises(DataError, match=r"has no branch 'xyz'; some of its branches: jet_pt, label, npart"):
        read_columns(str(good), ["xyz"])


def test_other_type_in_one_file(tmp_path: Path) -> None:
    write_table(tmp_path / "a.root", {"x": np.ones(2, np.float32)})
    write_table(tmp_path / "b.root", {"x": np.ones(2, np.float64)})
    types = [inspect_file(str(tmp_path / name)).branches["x"] for name in ("a.root", "b.root")]
    assert types == ["float32", "float64"]


@pytest.mark.parametrize("num_jets", [0, 1])
def test_few_entries(tmp_path: Path, num_jets: int) -> None:
    path = str(tmp_path / "x.root")
    jagged = Jagged(np.ones(2 * num_jets, np.float32), np.arange(num_jets + 1) * 2)
    write_table(path, {"part_px": jagged, "jet_pt": np.ones(num_jets, np.float32)})
    info = inspect_file(path)
    assert (info.num_entries, info.chunks) == (num_jets, ((0, 1),) if num_jets else ())
    columns = read_columns(path, ["part_px", "jet_pt"])
    assert len(columns["part_px"]) == len(columns["jet_pt"]) == num_jets


@pytest.mark.parametrize(("start", "stop"), [(0, 201), (201, None), (-1, 3), (5, 4)])
def test_entries_out_of_range(good: Path, start: int, stop: int | None) -> None:
    with pytest.raises(DataError, match=r"has 200 entries.*did the file change"):
        read_columns(str(good), BRANCHES, start, stop)


@pytest.mark.parametrize("start", [0, 99, 100, 101, 199, 200])
def test_around_a_chunk_boundary(good: Path, start: int) -> None:
    whole = read_columns(str(good), BRANCHES)
    part = read_columns(str(good), BRANCHES, start)
    assert np.array_equal(part["jet_pt"], whole["jet_pt"][start:])
    assert np.array_equal(part["part_px"].lengths, whole["part_px"].lengths[start:])


def test_no_permission(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied", str(good))

    monkeypatch.setattr(os, "open", refuse)  # the tests may run as root, whom no mode stops
    with pytest.raises(AuthenticationError, match=r"good\.root: access denied .*Permission denied"):
        inspect_file(str(good))


@pytest.mark.parametrize("kind", ["tree", "ntuple"])
def test_vanished_after_inspection(tmp_path: Path, kind: str) -> None:
    path = make_file(tmp_path / "x.root", None, is_rntuple=kind == "ntuple")
    read_all(path)
    path.unlink()
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}: no such file .*deleted"):
        read_columns(str(path), BRANCHES)


@pytest.mark.parametrize("suffix", ["root", "parquet"])
def test_changed_after_inspection(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"

    def write(values: list[float]) -> None:
        if suffix == "root":
            write_table(path, {"x": np.array(values)})
        else:
            pa.parquet.write_table(pa.table({"x": values}), path)

    write([1.0, 2.0])
    info = inspect_file(str(path))
    assert read_columns(str(path), ["x"], identity=info.identity)["x"].tolist() == [1, 2]
    write([3.0, 4.0, 5.0])
    with pytest.raises(DataError, match="changed after it was inspected"):
        read_columns(str(path), ["x"], identity=info.identity)
    assert read_columns(str(path), ["x"])["x"].tolist() == [
        3,
        4,
        5,
    ]  # without an identity, the new file is read


def test_cut_while_it_is_read(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspect_file(str(good))
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, start: whole(file, size, start)[:-1])
    with pytest.raises(
        DataError, match=r"cannot read entries 0 to the last of part_px, .*EOFError: got \d+ bytes"
    ):
        read_columns(str(good), BRANCHES)
