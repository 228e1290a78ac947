"""A dask cluster gives the columns of a local run, also if a worker is killed."""

import os
import subprocess
import sys

import pytest
import torch

import partt
from jets import write_jets
from partt.cli.main import main
from partt.predict import job as job_module
from prediction_jobs import assert_same_columns, saved_tagger

CHUNK = 16
# In a process of its own: dask leaves threads and sockets behind.
SCRIPT = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path

import distributed

import partt
from partt.cli.main import main
from partt.predict import job as job_module


def run(folder):
    job_module.CHUNK_ENTRIES = {chunk}
    files = [str(path) for path in sorted(folder.glob("[ab].root"))]
    options = {{"keep": ["part_px"], "discriminants": ["Hbb_vs_QCD"], "embeddings": True}}
    partt.predict(folder / "t.safetensors", files, folder / "local", num_threads=2, **options)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None)
    with suppress(TimeoutError), cluster:  # on a busy machine the killed worker's successor ends too late
        victims = [worker.process.pid for worker in cluster.workers.values()][:1]

        def kill(done, total):
            while victims and done:
                os.kill(victims.pop(), signal.SIGKILL)

        scheduler = cluster.scheduler_address
        tagger = folder / "t.safetensors"
        result = partt.predict(tagger, files, folder / "dask", scheduler=scheduler, progress=kill, **options)
    assert not victims
    assert result.balance.scored == 200
    words = ["predict", "--tagger", str(folder / "t.safetensors"), files[0], str(folder / "broken.root")]
    return main([*words, "--out", str(folder / "workers"), "--workers", "1", "--on-bad-file", "skip",
                 "--max-bad-fraction", "0.6"])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
"""


def test_a_killed_worker_changes_nothing(tmp_path):
    torch.set_num_threads(1)
    saved_tagger(tmp_path / "t.safetensors")
    for seed, name in enumerate("ab"):
        write_jets(tmp_path / f"{name}.root", 100, seed=seed)
    (tmp_path / "broken.root").write_bytes((tmp_path / "a.root").read_bytes()[:9000])
    (tmp_path / "script.py").write_text(SCRIPT.format(chunk=CHUNK))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    for name in "ab":
        assert_same_columns(tmp_path / "dask" / f"{name}.root", tmp_path / "local" / f"{name}.root")
    assert (tmp_path / "workers" / "a.root").exists()
    assert "broken.root: the file is truncated" in done.stdout


def test_no_scheduler_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("partt.predict.engines.CONNECT_TIMEOUT", "1s")
    saved_tagger(tmp_path / "t.safetensors")
    path = write_jets(tmp_path / "jets.root", 10)
    words = ["--tagger", str(tmp_path / "t.safetensors"), "--out", str(tmp_path / "out")]
    assert main(["predict", str(path), *words, "--scheduler", "tcp://127.0.0.1:9"]) == 5
    assert "no dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["predict", str(path), *words, "--scheduler", "tcp://127.0.0.1:9", "--workers", "2"])


def test_chunks_do_not_depend_on_the_engine(tmp_path, monkeypatch):
    """Which jets are computed together is part of the plan that is sent to workers."""
    monkeypatch.setattr(job_module, "CHUNK_ENTRIES", CHUNK)
    torch.set_num_threads(1)
    tagger = saved_tagger(tmp_path / "t.safetensors")
    path = write_jets(tmp_path / "jets.root", 50)
    partt.predict(tagger, path, tmp_path / "one.root", num_threads=1)
    partt.predict(tagger, path, tmp_path / "four.root", num_threads=4)
    assert_same_columns(tmp_path / "one.root", tmp_path / "four.root")
