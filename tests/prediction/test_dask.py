"""A dask cluster gives the same columns as a local run, even if a worker is killed."""

import os
import subprocess
import sys

import pytest
from regression_taggers import regression_tagger

import partt
from jets import write_jets
from partt.cli.main import main
from partt.prediction import opened_files
from partt.tagger.tagger_file import save_tagger
from prediction_jobs import assert_same_columns, saved_tagger

CHUNK = 16
# In a separate process: dask leaves threads and sockets behind.
SCRIPT = """
import multiprocessing, sys
from pathlib import Path

import distributed

import partt
from partt.cli.main import main
from partt.prediction import opened_files


def run(folder):
    opened_files.CHUNK_ENTRIES = {chunk}
    tagger, files = folder / "t.safetensors", sorted(folder.glob("[ab].root"))
    options = {{"keep": ["part_px"], "discriminants": ["Hbb_vs_QCD"], "embeddings": True}}
    partt.predict(tagger, files, folder / "local", num_threads=2, **options)
    victims = []

    def kill(done, total):
        if done and not victims:
            victims.append(multiprocessing.active_children()[0])
            victims[0].kill()

    result = partt.predict(tagger, files, folder / "dask", num_workers=2, progress=kill, **options)
    assert victims
    assert result.balance.scored == 200
    with distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp://", dashboard_address=None) as cluster:
        words = [str(files[0]), str(folder / "broken.root"), "--on-bad-file", "skip", "--max-bad-fraction", "0.6"]
        words += ["--out", str(folder / "scheduler"), "--scheduler", cluster.scheduler_address]
        return main(["predict", "--tagger", str(tagger), *words])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path):
    save_tagger(tmp_path / "t.safetensors", regression_tagger("part"))
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
    assert (tmp_path / "scheduler" / "a.root").exists()
    assert "broken.root: the file is truncated" in done.stdout


def test_no_scheduler_answers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("partt.jobs.dask_cluster.CONNECT_TIMEOUT", "1s")
    saved_tagger(tmp_path / "t.safetensors")
    path = write_jets(tmp_path / "jets.root", 10)
    words = ["--tagger", str(tmp_path / "t.safetensors"), "--out", str(tmp_path / "out")]
    assert main(["predict", str(path), *words, "--scheduler", "tcp://127.0.0.1:9"]) == 5
    assert "no dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err
    assert main(["predict", str(path), *words, "--scheduler", "tls://127.0.0.1:9"]) == 5
    assert "no dask scheduler answers at tls://127.0.0.1:9: TLS expects" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["predict", str(path), *words, "--scheduler", "tcp://127.0.0.1:9", "--workers", "2"])


def test_chunks_do_not_depend_on_the_engine(tmp_path, monkeypatch):
    """Which jets are computed together does not depend on the number of threads."""
    monkeypatch.setattr(opened_files, "CHUNK_ENTRIES", CHUNK)
    tagger = saved_tagger(tmp_path / "t.safetensors")
    path = write_jets(tmp_path / "jets.root", 50)
    partt.predict(tagger, path, tmp_path / "one.root", num_threads=1)
    partt.predict(tagger, path, tmp_path / "four.root", num_threads=4)
    assert_same_columns(tmp_path / "one.root", tmp_path / "four.root")
