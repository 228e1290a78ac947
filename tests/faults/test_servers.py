"""Servers that do not answer, answer slowly or go away: every wait is bounded, and a signal ends it."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec.config
import pytest
import torch
import yaml
from distributed import CancelledError
from distributed.client import ClosedClientError
from test_distributed import free_port, run_rank, run_two
from test_faults import in_child, wait_for
from test_fit import assert_same_run

import partt
from conftest import FIXTURES, ROOT
from forked_commands import start_partt
from jets import write_jets
from partt.data.files import access
from partt.data.files.tables import inspect_file
from partt.errors import ConfigError, DataError, OutputError, ParttError
from partt.jobs import dask_cluster as clusters
from partt.jobs.metrics_file import read_metrics
from partt.jobs.stop_signals import SignalledError, stop_on_signal
from partt.training import distributed
from prediction_jobs import saved_tagger
from training_jobs import TINY_RECIPE, run_job, stop_after, tiny_job

pytestmark = pytest.mark.server

FIXTURE = FIXTURES / "jetclass_vector_layout.root"


class Handler(BaseHTTPRequestHandler):
    """Serves the fixture, or the files of `server.folder`; `server.fault` says how the bodies of answers fail."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.server.requests += 1
        if self.server.busy:
            self.send_response(self.server.busy.pop(0))
            self.send_header("Retry-After", self.server.retry_after)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        name = self.path.partition("?")[0].lstrip("/")
        path = self.server.folder / name if self.server.folder else FIXTURE
        if not path.exists():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = path.read_bytes()
        start, stop = 0, len(body)
        wanted = self.headers.get("Range")
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last or len(body)) + 1, len(body))
        self.send_response(206 if wanted else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(stop - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
        self.end_headers()
        if self.command == "GET":
            self.send_body(body[start:stop])

    def send_body(self, body):
        if self.server.fault == "silent":  # more bytes announced than sent
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.server.released.wait(100)
            self.close_connection = True
        elif self.server.fault == "drip":
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.released.wait(0.1):
                    return
        else:
            self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault, self.busy, self.requests, self.retry_after = "", [], 0, "1"
        self.folder = None
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/jets.root"

    def handle_error(self, *_):
        """Keep quiet about clients that went away."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setitem(fsspec.config.conf, "http", {})
    monkeypatch.setitem(fsspec.config.conf, "https", {})
    monkeypatch.setattr(access, "RETRY_DELAYS", (0.02, 0.04))
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


@contextmanager
def at_most(seconds):
    """Expect the end of a wait; nothing else ends it: the server keeps silent for longer, and 0.1 waited for 300 s."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def test_a_silent_server_is_given_up(server, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "0.4")
    server.fault = "silent"
    with at_most(40), pytest.raises(DataError, match=r"\(3 attempts\).*no byte for 0.4 s"):
        inspect_file(server.url)


def test_a_server_that_drips_is_given_up(server, monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "2")  # a busy machine lets bytes wait
    monkeypatch.setattr(access, "SLOWEST", 1)
    server.fault = "drip"
    with at_most(40), pytest.raises(DataError, match=r"TooSlowError: not complete after 2 s"):
        inspect_file(server.url)


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says(server, code):
    server.busy = [code, code, code]
    started = time.monotonic()
    assert inspect_file(server.url).num_entries == 30
    assert time.monotonic() - started > 0.9


def test_retry_after_is_bounded_and_may_be_a_date(monkeypatch):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, "5")
    for text, seconds in (
        ("3", 3),
        ("86400", 5),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 5),
        ("soon", 0),
        ("-1", 0),
    ):
        error = OSError()
        error.status, error.headers = 503, {"Retry-After": text}
        assert access.retry_after(error) == seconds


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf"])
def test_a_timeout_that_is_no_number(monkeypatch, value):
    monkeypatch.setenv(access.TIMEOUT_VARIABLE, value)
    with pytest.raises(ConfigError, match="PARTT_REMOTE_TIMEOUT"):
        inspect_file("http://127.0.0.1:9/jets.root")


def test_a_signal_ends_the_wait(server):
    server.fault = "silent"
    with stop_on_signal(), at_most(40):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(SignalledError, match="stopped by a signal while waiting for http"):
            inspect_file(server.url)


def test_a_signal_ends_a_prediction_that_waits(server, tmp_path):
    saved_tagger(tmp_path / "tagger.safetensors")
    server.fault = "silent"
    process = subprocess.Popen(
        [sys.executable, "-m", "partt", "predict", "--tagger", "tagger.safetensors", server.url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: server.requests >= 2, seconds=100)
    process.terminate()
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 75
    assert errors.strip().splitlines()[-1].startswith("partt: error: stopped by a signal")
    assert "Traceback" not in errors


VERBS = {  # verb -> its words without the URL, exit code after a signal, and whether the same command continues
    "check": ("check jetclass_kin", 143),
    "train": ("train tiny.yaml --val-fraction 0.2 --out run --threads 1 --workers 1 --train", 75),
    "predict": ("predict --tagger tagger.safetensors --out out --threads 1", 75),
    "evaluate": ("evaluate --out out", 143),
    "explain": ("explain tagger.safetensors --out out --threads 1", 143),
    "show": ("show tagger.safetensors --entry 1 --out out", 143),
}


def started(folder, verb, url, **environment):
    """Start a verb that reads a URL; standard error is a pipe."""
    saved_tagger(folder / "tagger.safetensors")
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 1}))
    return start_partt(
        [*VERBS[verb][0].split(), url],
        prepare=lambda: os.environ.update(environment),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def one_line(process):
    """Return exit code and the error of a command, which must end soon with one line; progress is no error."""
    _, errors = process.communicate(timeout=100)
    lines = [line for line in errors.splitlines() if line.startswith("partt: ") or "Error" in line]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return process.returncode, lines[0]


@pytest.mark.parametrize("verb", VERBS)
def test_a_signal_ends_every_verb_that_waits_for_a_server(server, tmp_path, verb):
    server.fault = "silent"
    process = started(tmp_path, verb, server.url)
    wait_for(lambda: server.requests >= 2, seconds=100)
    process.terminate()
    with at_most(40):
        code, error = one_line(process)
    assert code == VERBS[verb][1]
    assert "stopped by" in error


@pytest.mark.parametrize("fault", ["silent", "drip"])
@pytest.mark.parametrize("verb", ["train", "predict"])
def test_a_server_that_fails_is_one_line_and_a_rerun_completes(server, tmp_path, verb, fault):
    server.fault = fault
    code, error = one_line(started(tmp_path, verb, server.url, PARTT_REMOTE_TIMEOUT="0.2"))
    assert code == 3
    assert error.startswith(f"partt: error: {server.url}: cannot read")
    server.fault = ""
    process = started(tmp_path, verb, server.url)
    assert process.communicate(timeout=100)
    assert process.returncode == 0


# --- several processes --------------------------------------------------------------------------------


def rank_with_errors(rank, port, job, out, options):
    """Train as one of two processes; write the error down, and end with its exit code."""
    try:
        run_rank(rank, port, job, out, 10**9, options)
    except ParttError as error:
        (out / f"error_{rank}").write_text(str(error))
        os._exit(error.exit_code)


def start_ranks(job, out, **options):
    port = free_port()
    return [in_child(rank_with_errors, rank, port, job, out, options) for rank in range(2)]


def test_a_resume_with_another_number_of_processes_ends_all(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=2)
    run_job(job, tmp_path, should_stop=stop_after(3))
    ranks = start_ranks(job, tmp_path, resume=True)
    with at_most(100):
        for rank in ranks:
            rank.join(100)
    assert ranks[0].exitcode == ConfigError.exit_code
    assert "processes: 1 before, 2 now" in (tmp_path / "error_0").read_text()
    assert ranks[1].exitcode == OutputError.exit_code  # it lost the first one
    assert "lost another process of this run" in (tmp_path / "error_1").read_text()
    run_job(job, tmp_path, resume=True)
    run_job(job, tmp_path / "whole")
    assert_same_run(tmp_path, tmp_path / "whole")


@pytest.mark.parametrize("killed", [0, 1])
def test_a_dead_process_is_one_line_for_the_others_and_a_resume_goes_on(jet_file, tmp_path, killed):
    job = tiny_job(jet_file, epochs=2000, patience=2000)
    ranks = start_ranks(job, tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 8, seconds=100)
    ranks[killed].kill()
    with at_most(100):
        ranks[1 - killed].join(100)
    assert ranks[1 - killed].exitcode == OutputError.exit_code
    error = (tmp_path / f"error_{1 - killed}").read_text()
    assert "lost another process of this run" in error
    assert "\n" not in error
    assert run_two(job, tmp_path, stop_at=3, resume=True) == [75, 75]
    read_metrics(metrics)


def test_other_errors_of_training_stay_what_they_are():
    assert not distributed.LOST.search("mat1 and mat2 shapes cannot be multiplied")
    assert torch.distributed.is_available()


def start_dask(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def dask_cluster():
    """Yield the address of a scheduler with one worker, and the process of the scheduler."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler = start_dask("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    worker = start_dask("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    try:
        yield address, scheduler
    finally:
        for server in (scheduler, worker):
            server.kill()
            server.wait()


def assert_killed_scheduler_is_one_line(folder, arguments, is_working):
    """Kill the scheduler of a command when `is_working`; the command ends soon, with one line."""
    with dask_cluster() as (address, scheduler):
        process = subprocess.Popen(
            [sys.executable, "-m", "partt", *arguments, "--scheduler", address],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(is_working, seconds=120)
        scheduler.kill()
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 5, errors
    assert errors.strip().count("partt: error") == 1
    assert "the same command makes the rest" in errors
    assert "Traceback" not in errors


def test_a_killed_scheduler_ends_a_prediction_and_a_rerun_completes(tmp_path):
    saved_tagger(tmp_path / "tagger.safetensors")
    write_jets(tmp_path / "jets.root", 20)
    inputs = [tmp_path / f"jets_{number}.root" for number in range(80)]
    for copy in inputs:
        copy.hardlink_to(tmp_path / "jets.root")
    arguments = ["predict", "--tagger", "tagger.safetensors", "--out", "scores", *map(str, inputs)]
    assert_killed_scheduler_is_one_line(
        tmp_path, arguments, lambda: any((tmp_path / "scores").glob("*.root"))
    )
    partt.predict(tmp_path / "tagger.safetensors", inputs, tmp_path / "scores", num_threads=1)
    assert len(list(Path(tmp_path / "scores").glob("*.root"))) == len(inputs)


@pytest.mark.parametrize("error", [ClosedClientError("Client is closed"), CancelledError()])
def test_a_client_without_a_scheduler_has_lost_its_tasks(monkeypatch, error):
    monkeypatch.setattr(clusters, "_connected", lambda *_: nullcontext())
    with (
        pytest.raises(OutputError, match="the dask cluster lost a task"),
        clusters.dask_client("tcp://127.0.0.1:1"),
    ):
        raise error


@pytest.mark.slow
def test_a_killed_scheduler_ends_a_simulation_and_a_rerun_completes(tmp_path):
    words = ["simulate", "--out", "jets", "--jets", "2", "--jets-per-file", "1", "--classes", "Zqq"]
    jets = tmp_path / "jets"
    assert_killed_scheduler_is_one_line(tmp_path, words, (jets / "ZToQQ_000.root").exists)
    partt.simulate(jets, jets=2, jets_per_file=1, classes=["Zqq"])
    assert sorted(path.name for path in jets.iterdir()) == [
        "ZToQQ_000.root",
        "ZToQQ_001.root",
        "simulation.json",
    ]
