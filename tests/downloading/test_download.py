"""Downloads from a server that stalls, cuts, lies, corrupts and refuses: the file is right, or there is none."""

import gzip
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from dataset_files import write_quark_gluon
from file_server import FileServer, answer, drip, stall, status

import partt
from forked_commands import run_partt, start_partt
from partt.cli.convert import FORMATS
from partt.cli.main import main
from partt.config import shipped_names
from partt.data.files import access
from partt.downloading import download as download_module
from partt.downloading import transfer
from partt.downloading.public_datasets import FOLDER, load_public_dataset
from partt.errors import ConfigError, DataError, OutputError

pytestmark = pytest.mark.server

BODY = np.random.default_rng(0).bytes(300_000)
OTHER = np.random.default_rng(1).bytes(5_000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transfer, "RETRY_DELAYS", (0.01, 0.02, 0.03))
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "20")  # machines of CI are busy
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server():
    with FileServer({"train_0.h5": BODY}) as server:
        yield server


@pytest.fixture
def dataset(server, tmp_path):
    return str(server.write_list(tmp_path / "small.yaml"))


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@contextmanager
def at_most(seconds):
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def assert_whole(out):
    assert (out / "train_0.h5").read_bytes() == BODY
    assert names(out) == ["train_0.h5"]


# --- what works --------------------------------------------------------------------------------------------


def test_a_file_arrives(server, dataset, out):
    seen = []
    result = partt.download(dataset, out, progress=lambda done, total: seen.append((done, total)))
    assert_whole(out)
    assert (result.files_fetched, result.files_kept, result.bytes_fetched) == (1, 0, len(BODY))
    assert server.requests == [("train_0.h5", None)]
    assert seen
    again = partt.download(dataset, out)
    assert (again.files_fetched, again.files_kept, again.bytes_fetched) == (0, 1, 0)
    assert len(server.requests) == 1


def test_parts_names_and_globs(tmp_path, out):
    files = {"train_0.h5": b"0", "train_1.h5": b"1", "val_0.h5": b"2", "test_0.h5": b"3"}
    with FileServer(files) as server:
        dataset = str(server.write_list(tmp_path / "small.yaml"))
        partt.download(dataset, out, only=["test", "train_[1-9].h5"])
        assert names(out) == ["test_0.h5", "train_1.h5"]
        with pytest.raises(ConfigError, match=r"no 'tset'; --only takes parts \(train, val, test\)"):
            partt.download(dataset, out, only=["tset"])


def test_sizes_that_the_list_does_not_have_are_asked_for(server, tmp_path, out):
    dataset = server.write_list(tmp_path / "small.yaml", sizes=False)
    partt.download(str(dataset), out)
    assert_whole(out)
    assert server.requests == [("train_0.h5", None)] * 2


def test_the_next_command_converts_or_checks(tmp_path, out, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_quark_gluon(tmp_path / "train_0.npz", 12)
    with FileServer({"train_0.npz": (tmp_path / "train_0.npz").read_bytes()}) as server:
        server.write_list(tmp_path / "small.yaml", convert="quarkgluon", data_config="quark_gluon_kinpid")
        assert main(["download", "small.yaml", "--out", "qg"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "next: partt convert quarkgluon qg/train_0.npz --out qg/root"
    assert main(last.split()[2:]) == 0


@pytest.mark.parametrize("name", shipped_names(FOLDER))
def test_the_lists_that_partt_ships(name):
    dataset = load_public_dataset(name)
    assert dataset.address.startswith("https://zenodo.org/records/")
    checksums = [file.checksum for file in dataset.files]
    assert len(set(checksums)) == len(checksums)
    assert {file.part for file in dataset.files} >= {"train", "test"}
    assert dataset.convert in {None, *FORMATS}
    assert dataset.data_config in shipped_names("data_configs")


def test_the_size_of_the_shipped_lists():
    sizes = {name: len(load_public_dataset(name).files) for name in shipped_names(FOLDER)}
    assert sizes == {"jetclass": 12, "quark_gluon": 20, "top_landscape": 3}


# --- what is continued ---------------------------------------------------------------------------------------


def test_a_cut_connection_is_continued(server, dataset, out):
    server.faults = [answer(100_000), answer(50_000)]
    partt.download(dataset, out)
    assert_whole(out)
    assert [wanted for _, wanted in server.requests] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_partial_file_of_an_earlier_command_is_continued(server, dataset, out):
    out.mkdir()
    (out / "train_0.h5.partial").write_bytes(BODY[:123_456])
    result = partt.download(dataset, out)
    assert_whole(out)
    assert server.requests == [("train_0.h5", "bytes=123456-")]
    assert result.bytes_fetched == len(BODY) - 123_456


def test_a_complete_partial_file_needs_no_server(server, dataset, out):
    out.mkdir()
    (out / "train_0.h5.partial").write_bytes(BODY)
    partt.download(dataset, out)
    assert_whole(out)
    assert not server.requests


@pytest.mark.parametrize("start", [OTHER, BODY + OTHER], ids=["other bytes", "too long"])
def test_a_partial_file_of_another_version_is_thrown_away(server, dataset, out, start):
    out.mkdir()
    (out / "train_0.h5.partial").write_bytes(start)
    partt.download(dataset, out)
    assert_whole(out)


def test_a_server_without_ranges_starts_again(server, dataset, out):
    server.faults = [answer(100_000), answer(ranges=False)]
    partt.download(dataset, out)
    assert_whole(out)


def test_a_server_without_ranges_that_always_cuts_is_given_up(server, dataset, out):
    server.always = answer(200_000, ranges=False)
    with at_most(20), pytest.raises(DataError, match=r"4 attempts.*ended after 200000 of 300000 bytes"):
        partt.download(dataset, out)
    assert names(out) == ["train_0.h5.partial"]


def test_another_range_than_the_one_asked_for(server, dataset, out):
    server.faults = [answer(100_000), lambda handler, body, start: answer()(handler, body, start + 7)]
    partt.download(dataset, out)
    assert_whole(out)


def test_a_stalling_server_is_asked_again_and_given_up(server, dataset, out, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "2")
    server.faults = [answer(100_000, after=stall)]
    partt.download(dataset, out)
    assert_whole(out)
    shutil.rmtree(out)
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "0.4")
    server.always = answer(100, after=stall)
    with at_most(20), pytest.raises(DataError, match="no byte for 0.4 s .*the same command continues"):
        partt.download(dataset, out)
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "20")
    assert BODY.startswith((out / "train_0.h5.partial").read_bytes())
    server.always = answer()
    partt.download(dataset, out)
    assert_whole(out)


def test_patience_starts_anew_with_every_block(server, dataset, out, monkeypatch):
    monkeypatch.setattr(transfer, "BLOCK", 10_000)
    server.always = answer(20_000)
    partt.download(dataset, out)
    assert_whole(out)
    assert len(server.requests) == 15


def test_a_dripping_server_is_given_up(server, dataset, out, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "1")
    monkeypatch.setattr(access, "SLOWEST", 2)
    server.always = answer(10, after=drip)
    with at_most(20), pytest.raises(DataError, match="less than 1048576 bytes in 2 s; PARTT_REMOTE_TIMEOUT"):
        partt.download(dataset, out)


def test_a_server_that_is_gone(server, dataset, out):
    server.shutdown()
    server.server_close()
    with at_most(20), pytest.raises(DataError, match=r"4 attempts.*Connection refused"):
        partt.download(dataset, out)


# --- lies, damage, refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [True, False], ids=["size published", "size announced"])
def test_more_bytes_announced_than_sent(server, tmp_path, out, sizes):
    dataset = str(server.write_list(tmp_path / "small.yaml", sizes=sizes))
    server.always = answer(announced=len(BODY) + 10, total=len(BODY) + 10)
    with at_most(20), pytest.raises(DataError, match="the file on the server has" if sizes else "4 attempts"):
        partt.download(dataset, out)
    assert "train_0.h5" not in names(out)


def test_more_bytes_announced_than_sent_by_a_server_that_knows_where_the_file_ends(server, tmp_path, out):
    server.always = answer(announced=len(BODY) + 10)
    partt.download(str(server.write_list(tmp_path / "small.yaml", sizes=False)), out)
    assert_whole(out)


@pytest.mark.parametrize("sizes", [True, False], ids=["size published", "size announced"])
def test_fewer_bytes_announced_than_sent(server, tmp_path, out, sizes):
    dataset = str(server.write_list(tmp_path / "small.yaml", sizes=sizes))
    server.always = answer(announced=len(BODY) - 10)
    with (
        at_most(20),
        pytest.raises(DataError, match="the file on the server has" if sizes else "the checksum is md5:"),
    ):
        partt.download(dataset, out)
    assert "train_0.h5" not in names(out)


def test_no_length_announced(server, tmp_path, out):
    dataset = str(server.write_list(tmp_path / "small.yaml", sizes=False))
    server.always = answer(announced="nothing")
    partt.download(dataset, out)
    assert_whole(out)


def test_another_size_in_the_answer_to_a_range(server, dataset, out):
    server.faults = [answer(100_000), answer(total=17)]
    with pytest.raises(DataError, match="the file on the server has 17 bytes, not 300000 as published"):
        partt.download(dataset, out)


def test_a_damaged_file_is_fetched_once_more(server, dataset, out):
    server.faults = [answer(spoil=True)]
    partt.download(dataset, out)
    assert_whole(out)
    shutil.rmtree(out)
    server.always = answer(spoil=True)
    with pytest.raises(
        DataError, match="the checksum is md5:.*, not md5:.* as published: damaged in two downloads"
    ):
        partt.download(dataset, out)
    assert names(out) == []


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(server, dataset, out, code, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "2")
    server.faults = [status(code, Retry_After="100"), status(code)]
    started = time.monotonic()
    with at_most(60):
        partt.download(dataset, out)
    assert time.monotonic() - started > 2  # what the server asks for, but at most a timeout
    assert_whole(out)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (status(403), "access denied"),
        (status(404), "no such file"),
        (answer(Content_Type="text/html; charset=utf-8"), "a web page"),
    ],
    ids=["403", "404", "web page"],
)
@pytest.mark.parametrize("sizes", [True, False])
def test_a_refusal_is_final(server, tmp_path, out, fault, message, sizes):
    server.always = fault
    with pytest.raises(DataError, match=message):
        partt.download(str(server.write_list(tmp_path / "small.yaml", sizes=sizes)), out)
    assert len(server.requests) == 1
    assert names(out) == []


def test_redirections_are_followed(server, dataset, out):
    moved = f"http://127.0.0.1:{server.server_port}/moved/train_0.h5"
    server.faults = [answer(100_000), status(302, Location=moved)]
    partt.download(dataset, out)
    assert_whole(out)
    assert server.requests[-1] == ("train_0.h5", "bytes=100000-")


# --- the disk --------------------------------------------------------------------------------------------------


def test_too_little_disk_is_said_before_the_download(server, tmp_path, out):
    dataset = tmp_path / "small.yaml"
    server.write_list(dataset)
    dataset.write_text(dataset.read_text().replace("size: 300000", f"size: {10**17}"))
    with pytest.raises(OutputError, match=r"needs 100000000.0 GB of disk, .* GB are free; ask for less with"):
        partt.download(str(dataset), out)
    assert not server.requests


def test_an_archive_needs_room_beside_its_contents(server, dataset, out, monkeypatch):
    out.mkdir()
    free = shutil.disk_usage(out)._replace(free=500_000)
    monkeypatch.setattr(download_module.shutil, "disk_usage", lambda _: free)
    partt.download(dataset, out)
    server.files = {"val_0.tar": BODY}
    with pytest.raises(OutputError, match=r"needs 0\.0 GB"):
        partt.download(str(server.write_list(out.parent / "small.yaml")), out)


def test_a_full_disk_keeps_what_arrived(server, dataset, out):
    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))

    words = ["download", dataset, "--out", str(out)]
    result = run_partt(words, prepare=small_disk, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 5
    assert "cannot write" in result.stderr
    assert "the same command continues" in result.stderr
    assert (out / "train_0.h5.partial").read_bytes() == BODY[:70_000]
    assert main(words) == 0
    assert_whole(out)
    assert server.requests[-1] == ("train_0.h5", "bytes=70000-")


def test_foreign_files_are_not_replaced(server, dataset, out):
    out.mkdir()
    (out / "train_0.h5").write_bytes(OTHER)
    with pytest.raises(ConfigError, match="already exists and was not made by partt download"):
        partt.download(dataset, out)
    assert (out / "train_0.h5").read_bytes() == OTHER
    assert not server.requests
    partt.download(dataset, out, overwrite=True)
    assert_whole(out)


def test_an_empty_file_of_the_user_stays(server, dataset, out):
    out.mkdir()
    (out / "train_0.h5").touch()
    with pytest.raises(ConfigError, match="already exists"):
        partt.download(dataset, out)
    assert names(out) == ["train_0.h5"]


def test_links_are_not_followed(server, dataset, out, tmp_path):
    out.mkdir()
    (tmp_path / "mine").write_bytes(b"mine")
    (out / "train_0.h5.partial").symlink_to(tmp_path / "mine")
    with pytest.raises(OutputError, match="cannot write"):
        partt.download(dataset, out)
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_a_pipe_in_the_place_of_the_partial_file(server, dataset, out):
    out.mkdir()
    os.mkfifo(out / "train_0.h5.partial")
    with at_most(20), pytest.raises(OutputError, match="not a regular file"):
        partt.download(dataset, out)


# --- signals -----------------------------------------------------------------------------------------------------


def test_a_signal_ends_the_wait_and_the_same_command_continues(server, dataset, out, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "60")
    server.faults = [answer(100_000, after=stall)]
    words = ["download", dataset, "--out", str(out)]
    process = start_partt(words, stderr=subprocess.PIPE, text=True)
    partial = out / "train_0.h5.partial"
    end = time.monotonic() + 100
    while not (partial.exists() and partial.stat().st_size == 100_000):
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    with at_most(40):
        _, errors = process.communicate(timeout=40)
    assert process.returncode == 75
    assert errors.strip().endswith("what has arrived is kept, and the same command continues")
    assert partial.read_bytes() == BODY[:100_000]
    assert main(words) == 0
    assert_whole(out)


# --- archives ----------------------------------------------------------------------------------------------------


def tar_of(*members, form=tarfile.PAX_FORMAT):
    """Return an archive of (name, contents), or of TarInfo."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=form) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return packed.getvalue()


def folder_member(name):
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture
def packed(tmp_path):
    """Yield a server of an archive of two files, and their list."""
    archive = tar_of(folder_member("test_20M"), ("test_20M/a.root", BODY), ("test_20M/b.root", OTHER))
    with FileServer({"test_20M.tar": archive}) as server:
        yield server, str(server.write_list(tmp_path / "small.yaml"))


def test_an_archive_is_unpacked_and_removed(packed, out):
    server, dataset = packed
    result = partt.download(dataset, out)
    assert names(out) == ["download.json", "test_20M/a.root", "test_20M/b.root"]
    assert (out / "test_20M/a.root").read_bytes() == BODY
    assert result.next_command == f"partt check jetclass_full '{out}/test_20M/*.root'"
    assert partt.download(dataset, out).files_kept == 1
    assert len(server.requests) == 1
    listed = json.loads((out / "download.json").read_text())["archives"]["test_20M.tar"]
    assert listed["files"] == {"test_20M/a.root": len(BODY), "test_20M/b.root": len(OTHER)}
    assert listed["checksum"].endswith(hashlib.md5(server.files["test_20M.tar"]).hexdigest())  # noqa: S324
    (out / "test_20M/b.root").unlink()
    assert partt.download(dataset, out).files_fetched == 1
    assert (out / "test_20M/b.root").read_bytes() == OTHER


def test_an_unpacking_that_was_interrupted_is_continued(packed, out):
    server, dataset = packed
    (out / "test_20M").mkdir(parents=True)
    (out / "test_20M.tar.partial").write_bytes(server.files["test_20M.tar"])
    (out / "test_20M/a.root").write_bytes(BODY)
    (out / "test_20M/.b.0123abcd.tmp.root").write_bytes(b"half")
    inode = (out / "test_20M/a.root").stat().st_ino
    partt.download(dataset, out)
    assert not server.requests
    assert (out / "test_20M/a.root").stat().st_ino == inode
    assert names(out) == ["download.json", "test_20M/a.root", "test_20M/b.root"]


def test_foreign_files_where_an_archive_is_unpacked(packed, out):
    server, dataset = packed
    (out / "test_20M").mkdir(parents=True)
    (out / "test_20M/b.root").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="already exists and was not made by partt download"):
        partt.download(dataset, out)
    assert (out / "test_20M/b.root").read_bytes() == b"mine"
    partt.download(dataset, out, overwrite=True)
    assert (out / "test_20M/b.root").read_bytes() == OTHER
    assert len(server.requests) == 1  # the archive was kept


def test_a_foreign_download_json(packed, out):
    out.mkdir()
    (out / "download.json").write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match="was not made by partt download"):
        partt.download(packed[1], out)
    assert (out / "download.json").read_text() == '{"mine": 1}'


def sparse_bomb():
    info = tarfile.TarInfo("a.root")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a.root",
        "GNU.sparse.realsize": str(2**50),
    }
    return tar_of(info)


ATTACKS = {
    "a path upwards": tar_of(("a.root", OTHER), ("../../outside.root", BODY)),
    "an absolute path": tar_of(("/tmp/outside.root", BODY)),  # noqa: S108
    "a link": tar_of(("a.root", OTHER), link("b.root", "/etc/passwd")),
    "a hard link": tar_of(("a.root", OTHER), link("b.root", "a.root", tarfile.LNKTYPE)),
    "a device": tar_of(link("b.root", "", tarfile.CHRTYPE)),
    "a pipe": tar_of(link("b.root", "", tarfile.FIFOTYPE)),
    "one name twice": tar_of(("a/a.root", OTHER), ("b/a.root", BODY)),
    "a sparse file": sparse_bomb(),
    "no archive": BODY,
    "a compressed archive": gzip.compress(tar_of(("a.root", OTHER))),
    "a truncated archive": tar_of(("a.root", BODY))[:200_000],
    "control characters": tar_of(("a\x1b[2J.root", OTHER)),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_archives_that_are_no_datasets(tmp_path, out, attack):
    with FileServer({"test_20M.tar": ATTACKS[attack]}) as server:
        dataset = str(server.write_list(tmp_path / "small.yaml"))
        with pytest.raises(DataError) as caught:
            partt.download(dataset, out)
    assert len(str(caught.value).splitlines()) == 1
    found = names(tmp_path)
    assert found == ["out/test_20M.tar.partial", "small.yaml"]


# --- lists -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: train_0.h5", "name: ../train_0.h5", r"files\[0\].name: must be the name of a file"),
        ("name: train_0.h5", "name: /etc/x", "must be the name of a file"),
        ("part: train", "part: train\n  unpack_to: ..", "must be the name of a file or folder"),
        ("http://127", "file:///127", "address: must be a web address"),
        ("checksum: md5:", "checksum: crc:", "checksum: String should match pattern"),
        ("size: 300000", "size: -1", "size: should be greater than 0"),
        ("title:", "titel:", "unknown key.*did you mean 'title'"),
    ],
)
def test_faults_of_lists(server, dataset, out, old, new, message):
    text = Path(dataset).read_text()
    assert old in text
    Path(dataset).write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        partt.download(dataset, out)
    assert not out.exists()


def test_a_name_that_nobody_ships(out):
    with pytest.raises(ConfigError, match="did you mean 'top_landscape'"):
        partt.download("top_lanscape", out)


def test_memory_does_not_grow_with_the_file(tmp_path, out):
    body = bytes(40_000_000)
    num_threads = threading.active_count()  # of tests before, too
    with FileServer({"train_0.h5": body}) as server:
        dataset = str(server.write_list(tmp_path / "small.yaml"))
        tracemalloc.start()
        try:
            partt.download(dataset, out)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 15_000_000  # a few blocks
    assert threading.active_count() < num_threads + 20
