"""Remote files: a real xrootd server and a small web server, both on the loopback address."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import uproot

import partt
from partt.data.files import access as file_access
from partt.data.files.cache import FILE_CACHE
from partt.data.files.lists import InputFile, expand_files
from partt.data.files.tables import AuthenticationError, inspect_file, read_columns, read_note, write_table
from partt.errors import DataError, without_secrets
from xrootd_server import xrootd_serving

pytestmark = pytest.mark.server

FIXTURE = Path(__file__).parents[1] / "fixtures" / "jetclass_vector_layout.root"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_access, "RETRY_DELAYS", (0.02, 0.04))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's own: xrootd refuses to run as root."""
    with tempfile.TemporaryDirectory(prefix="partt_remote_") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "jets").mkdir()
        for copy in ("x_2.root", "x_1.root", "y.root"):
            shutil.copy(FIXTURE, path / "jets" / copy)
        (path / "jets" / "broken.root").write_bytes(FIXTURE.read_bytes()[:20000])
        yield path


# --- xrootd ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def xrootd(xrootd_program: str, folder: Path) -> Iterator[str]:
    with xrootd_serving(xrootd_program, folder) as (url, _):
        yield url


def assert_fixture(url: str) -> None:
    info = inspect_file(url)
    local = inspect_file(str(FIXTURE))
    assert (info.num_entries, info.branches, info.chunks) == (local.num_entries, local.branches, local.chunks)
    names = ["part_px", "part_isMuon", "jet_pt", "label_Hbb"]
    columns = read_columns(url, names, 3, 20, identity=info.identity)
    expected = read_columns(str(FIXTURE), names, 3, 20)
    assert np.array_equal(columns["part_px"].contents, expected["part_px"].contents)
    assert columns["part_px"].offsets is columns["part_isMuon"].offsets
    assert np.array_equal(columns["jet_pt"], expected["jet_pt"])


def test_xrootd_glob_and_read(xrootd: str) -> None:
    files = expand_files([f"TTBar:{xrootd}/jets/x_*.root", f"{xrootd}/jets/y.root"])
    assert files == (
        InputFile("TTBar", f"{xrootd}/jets/x_1.root"),
        InputFile("TTBar", f"{xrootd}/jets/x_2.root"),
        InputFile("", f"{xrootd}/jets/y.root"),
    )
    for file in files:
        assert_fixture(file.url)


def test_xrootd_glob_without_a_match(xrootd: str) -> None:
    with pytest.raises(DataError, match="matches no file"):
        expand_files([f"A:{xrootd}/jets/z_*.root"])
    with pytest.raises(DataError, match="no such file"):
        expand_files([f"A:{xrootd}/jets/none/z_*.root"])


def test_xrootd_missing_file_is_not_tried_again(xrootd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_access, "RETRY_DELAYS", (100.0,))
    url = f"{xrootd}/jets/none.root"
    for action in (lambda: inspect_file(url), lambda: read_columns(url, ["jet_pt"])):
        with pytest.raises(DataError, match=r"none\.root: no such file"):
            action()


def test_xrootd_truncated_file(xrootd: str) -> None:
    with pytest.raises(DataError, match=r"broken\.root: the file is truncated: 20000 of 58062 bytes"):
        inspect_file(f"{xrootd}/jets/broken.root")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that the server may not read")
def test_xrootd_denies_at_once(xrootd: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_access, "RETRY_DELAYS", (100.0,))
    shutil.copy(FIXTURE, folder / "jets" / "secret.root")
    (folder / "jets" / "secret.root").chmod(0)
    with pytest.raises(AuthenticationError, match=r"secret\.root: access denied .*log in again"):
        inspect_file(f"{xrootd}/jets/secret.root")


def test_xrootd_server_gone(xrootd_program: str, folder: Path) -> None:
    with xrootd_serving(xrootd_program, folder) as (base, server):
        url = f"{base}/jets/y.root"
        assert_fixture(url)
        server.kill()
        server.wait()
        started = time.monotonic()
        for action in (
            lambda: read_columns(url, ["jet_pt"]),
            lambda: inspect_file(url),
            lambda: expand_files([f"{base}/jets/*.root"]),
        ):
            with pytest.raises(DataError, match=r"\(3 attempts\).*is the server up"):
                action()
        assert time.monotonic() - started < 60


class Proxy:
    """Pass bytes between a client and a server; cut the connection once, in the middle of an answer."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut_after: int | None = None  # bytes of answers
        self.cuts = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, sink, sink is client), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1024):
                if is_answer and self.cut_after is not None:
                    self.cut_after -= len(data)
                    if self.cut_after < 0:
                        self.cut_after = None
                        self.cuts += 1
                        break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_xrootd_reset_in_the_middle_of_a_read(xrootd: str) -> None:
    proxy = Proxy(int(xrootd.rstrip("/").rpartition(":")[2]))
    url = f"root://127.0.0.1:{proxy.port}//jets/y.root"
    names = [name for name in inspect_file(url).branches if name.startswith("part_")]
    proxy.cut_after = 5000
    columns = read_columns(url, names)
    proxy.listener.close()
    assert proxy.cuts == 1
    expected = read_columns(str(FIXTURE), names)
    assert all(np.array_equal(columns[name].contents, expected[name].contents) for name in names)


def test_xrootd_rntuple_after_a_reset(xrootd: str, folder: Path) -> None:
    half = 1_000_000  # entries in a cluster: more than fsspec reads ahead
    values = np.arange(2.0 * half)
    with uproot.recreate(folder / "jets" / "ntuple.root", compression=None) as file:
        file.mkrntuple("tree", {"x": values[:half]}).extend({"x": values[half:]})
    proxy = Proxy(int(xrootd.rstrip("/").rpartition(":")[2]))
    url = f"root://127.0.0.1:{proxy.port}//jets/ntuple.root"
    assert np.array_equal(read_columns(url, ["x"], 0, 5)["x"], values[:5])
    proxy.cut_after = 500_000
    assert np.array_equal(read_columns(url, ["x"], half)["x"], values[half:])
    proxy.listener.close()
    assert proxy.cuts == 1


def test_a_tree_that_failed_is_opened_again(folder: Path) -> None:
    path = folder / "jets" / "local_ntuple.root"
    with uproot.recreate(path) as file:
        file.mkrntuple("tree", {"x": np.arange(5.0)})
    read_columns(str(path), ["x"])
    (key,) = [key for key in FILE_CACHE.open_trees if key[1] == str(path)]
    FILE_CACHE.open_trees[key] = mock.Mock(spec=["file"])  # reading from it fails
    broken = FILE_CACHE.open_trees[key]
    with pytest.raises(DataError, match="corrupt data in branch 'x'"):
        read_columns(str(path), ["x"])
    broken.file.close.assert_called_once()
    assert read_columns(str(path), ["x"])["x"].tolist() == [0, 1, 2, 3, 4]


def test_xrootd_is_quiet_at_exit(xrootd: str) -> None:
    script = """
import sys, warnings
import torch.distributed
from partt.data.files.tables import inspect_file
with warnings.catch_warnings():  # as pytest does: it undoes what is set inside
    assert inspect_file(sys.argv[1]).num_entries == 30
"""
    command = [sys.executable, "-c", script, f"{xrootd}/jets/y.root"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- https -------------------------------------------------------------------------------------------


class WebServer(ThreadingHTTPServer):
    """Serves a folder with ranges; faults are played once each, in order, before good answers."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), WebHandler)
        self.folder = folder
        self.faults: list[str] = []
        self.headers: dict[str, str] = {}
        self.requests = 0

    def handle_error(self, *_: object) -> None:
        """Keep quiet about clients that went away."""


class WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        self.server.requests += 1
        fault = self.server.faults.pop(0) if self.server.faults else ""
        path = self.server.folder / self.path.partition("?")[0].lstrip("/")
        if fault.isdecimal() or not path.is_file():
            self.send_response(int(fault or 404))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = path.read_bytes()
        start, stop = 0, len(body)
        if wanted := fault != "whole" and self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last or len(body)) + 1, len(body))
        self.send_response(206 if wanted else 200)
        self.send_header("Accept-Ranges", "bytes")
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(stop - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
        self.end_headers()
        if self.command == "GET":
            piece = body[start:stop]
            self.wfile.write(piece[: len(piece) // 2] if fault == "reset" else piece)
        if fault == "reset":
            self.connection.close()
            self.close_connection = True


@pytest.fixture
def web(folder: Path) -> Iterator[WebServer]:
    server = WebServer(folder)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def address(server: WebServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


def test_web_read(web: WebServer) -> None:
    files = expand_files([f"A:{address(web, 'jets/y.root')}?token=1"])
    assert_fixture(files[0].url)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://me:secret@host:80/a/b.root?authz=secret", "https://host:80/a/b.root"),
        ("root://secret@host//a/b.root?authz=a%20b&c=1", "root://host//a/b.root"),
        ("/data/what?.root", "/data/what?.root"),
        ("404, url='https://host/b.root?sig=s' (lost?)", "404, url='https://host/b.root' (lost?)"),
    ],
)
def test_secrets_are_cut_out_of_urls(url: str, public: str) -> None:
    assert without_secrets(url) == public


def test_no_token_is_written_by_a_prediction(web: WebServer, tmp_path: Path) -> None:
    good, bad = (f"{address(web, f'jets/{name}.root')}?authz=SECRET" for name in ("y", "none"))
    result = partt.predict("jetclass-small", [good, bad], tmp_path, on_bad_file="skip", max_bad_fraction=0.6)
    with uproot.open(tmp_path / "y.root") as file:
        assert set(file["tree"]["source_file"].array(library="np")) == {address(web, "jets/y.root")}
    assert [file.url for file in result.bad_files] == [bad]
    written = (tmp_path / "predict.json").read_text() + (read_note(str(tmp_path / "y.root")) or "")
    assert address(web, "jets/none.root") in written
    assert "SECRET" not in written
    again = partt.predict("jetclass-small", good.replace("SECRET", "OTHER"), tmp_path)
    assert again.outputs[0].was_complete


def test_web_parquet(web: WebServer, folder: Path) -> None:
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), folder / "x.parquet")
    url = address(web, "x.parquet")
    assert inspect_file(url).num_entries == 3
    assert read_columns(url, ["x"], 1)["x"].tolist() == [2, 3]


VERSIONS = [("ETag", '"1"', '"2"'), ("Last-Modified", "Mon, 01 Jan 2024", "Tue, 02 Jan 2024")]


@pytest.mark.parametrize(("header", "before", "after"), VERSIONS)
def test_web_server_tells_that_a_file_changed(
    web: WebServer, folder: Path, header: str, before: str, after: str
) -> None:
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), folder / "x.parquet")
    url = address(web, "x.parquet")
    web.headers = {header: before}
    info = inspect_file(url)
    assert inspect_file(url) == info
    web.headers = {header: after}
    assert inspect_file(url).identity != info.identity
    with pytest.raises(DataError, match="changed after it was inspected"):
        read_columns(url, ["x"], identity=info.identity)


def test_web_server_tells_nothing_but_the_file_changed(web: WebServer, folder: Path) -> None:
    path, url = folder / "x.parquet", address(web, "x.parquet")
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), path)
    size, info = path.stat().st_size, inspect_file(url)
    assert inspect_file(url) == info
    assert read_columns(url, ["x"], 0, 2)["x"].tolist() == [1, 2]
    pa.parquet.write_table(pa.table({"x": [5.0, 6.0, 7.0]}), path)
    assert path.stat().st_size == size
    assert inspect_file(url).identity != info.identity
    assert read_columns(url, ["x"], 0, 2)["x"].tolist() == [5, 6]


def test_web_tree_that_changed(web: WebServer, folder: Path) -> None:
    url = address(web, "changing.root")
    identities = set()
    for value in (1.0, 2.0):
        write_table(folder / "changing.root", {"x": np.full(3, value)})
        identities.add(inspect_file(url).identity)
        assert read_columns(url, ["x"])["x"].tolist() == [value] * 3
    assert len(identities) == 2


def test_xrootd_tells_that_a_file_changed(xrootd: str, folder: Path) -> None:
    path = folder / "jets" / "x.parquet"
    pa.parquet.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), path)
    identities = []
    for seconds in (1_700_000_000, 1_700_000_000, 1_700_000_001):
        os.utime(path, (seconds, seconds))
        identities.append(inspect_file(f"{xrootd}/jets/x.parquet").identity)
    assert identities[0] == identities[1] != identities[2]


def test_web_missing_file(web: WebServer) -> None:
    with pytest.raises(DataError, match="no such file"):
        inspect_file(address(web, "none.root"))


def test_web_page_instead_of_a_file(web: WebServer, folder: Path) -> None:
    (folder / "page.root").write_text("<!DOCTYPE html><html><body>Please log in</body></html>")
    with pytest.raises(DataError, match="web page"):
        inspect_file(address(web, "page.root"))


@pytest.mark.parametrize("fault", ["reset", "503"])
def test_web_fault_in_the_middle_of_a_read_is_tried_again(web: WebServer, fault: str) -> None:
    url = address(web, "jets/y.root")
    inspect_file(url)
    web.requests = 0
    web.faults = [fault, fault]
    assert len(read_columns(url, ["part_px", "jet_pt"])["jet_pt"]) == 30
    assert web.faults == []


def test_web_lasting_fault_is_an_error(web: WebServer) -> None:
    url = address(web, "jets/y.root")
    web.faults = ["503"] * 100
    with pytest.raises(DataError, match=r"cannot read the file \(3 attempts\).*503") as raised:
        inspect_file(url)
    assert not isinstance(raised.value, AuthenticationError)


def test_web_server_without_ranges(web: WebServer) -> None:
    web.faults = ["whole"] * 100
    with pytest.raises(DataError, match="sends whole files, not byte ranges; download"):
        inspect_file(address(web, "jets/y.root"))


@pytest.mark.parametrize("status", ["401", "403"])
@pytest.mark.parametrize("moment", ["inspect", "read"])
def test_web_denial_is_not_tried_again(
    web: WebServer, status: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_access, "RETRY_DELAYS", (100.0,))
    url = address(web, "jets/y.root")
    if moment == "read":
        inspect_file(url)
    web.faults = [status] * 100
    with pytest.raises(AuthenticationError, match=rf"{url}: access denied .*{status}"):
        read_columns(url, ["jet_pt"])


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise ImportError("Install fsspec-xrootd to access root files")

    monkeypatch.setattr(file_access.fsspec.core, "url_to_fs", fail)
    with pytest.raises(DataError, match=r"pip install 'partt\[remote\]'"):
        inspect_file("root://127.0.0.1//x.root")


def test_written_file_is_read_over_the_network(xrootd: str, folder: Path) -> None:
    write_table(folder / "jets" / "new.root", {"x": np.arange(5.0)})
    assert read_columns(f"{xrootd}/jets/new.root", ["x"], 2)["x"].tolist() == [2, 3, 4]
