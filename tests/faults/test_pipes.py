"""Standard output that nobody reads: it never ends a job, and never gives a traceback."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
import yaml

from conftest import ROOT
from forked_commands import run_partt
from jets import write_jets
from partt.cli.main import main
from prediction_jobs import saved_tagger
from training_jobs import TINY_RECIPE

TRAIN = "train tiny.yaml --train jets.root --val-fraction 0.25 --out run --workers 0 --set epochs=2"


@pytest.fixture
def folder(tmp_path):
    write_jets(tmp_path / "jets.root", 100)
    saved_tagger(tmp_path / "tagger.safetensors")
    recipe = {**TINY_RECIPE, "jets_per_epoch": 32}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


@contextmanager
def closed_pipe():
    """Yield a pipe whose reading end is closed from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def run_with_closed_pipes(folder, command, *, errors_too=False):
    with closed_pipe() as pipe:
        options = {"stdout": pipe, "stderr": pipe if errors_too else subprocess.PIPE}
        result = run_partt(command.split(), cwd=folder, text=True, **options)
    return checked(result)


def checked(result) -> int:
    """Return the exit code of a command that has printed no traceback."""
    assert not result.stderr or "Traceback" not in result.stderr
    assert not result.stderr or "Exception ignored" not in result.stderr
    return result.returncode


def test_training_outlasts_its_reader(folder):
    assert run_with_closed_pipes(folder, TRAIN, errors_too=True) == 0
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [0, 1]
    assert (folder / "run" / "best.safetensors").exists()
    assert list((folder / "run" / "checkpoints").glob("*.json"))


def test_prediction_outlasts_its_reader(folder):
    assert run_with_closed_pipes(folder, "predict --tagger tagger.safetensors jets.root --out scores") == 0
    assert (folder / "scores" / "predict.json").exists()


def test_the_exit_code_of_check_stays(folder):
    (folder / "bad.root").write_bytes(b"")
    assert run_with_closed_pipes(folder, "check jetclass_kin bad.root") == 3
    assert run_with_closed_pipes(folder, "check jetclass_kin jets.root") == 0


def test_an_interpreter_that_ends_says_nothing(folder):
    """At its end Python flushes the streams once more."""
    with closed_pipe() as pipe:
        result = subprocess.run(
            [sys.executable, "-m", "partt", "check", "jetclass_kin", "jets.root"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert checked(result) == 0


def test_streams_may_be_closed_from_the_start(folder):
    command = f"{sys.executable} -m partt predict --tagger tagger.safetensors jets.root --out scores >&- 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=False).returncode == 0
    assert (folder / "scores" / "predict.json").exists()


def run_with_full_disk(folder, command, descriptor):
    """Run a command with an output, 1 or 2, to a full disk."""

    def fill():
        os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)

    pipe = subprocess.PIPE
    result = run_partt(command.split(), prepare=fill, cwd=folder, stdout=pipe, stderr=pipe, text=True)
    return checked(result), result.stderr


def test_a_full_disk_under_standard_error_ends_nothing(folder):
    assert run_with_full_disk(folder, TRAIN, 2)[0] == 0
    assert (folder / "run" / "best.safetensors").exists()
    assert run_with_full_disk(folder, "check jetclass_kin none.root", 2)[0] == 3


def test_a_full_disk_under_standard_output_is_one_line(folder):
    code, errors = run_with_full_disk(folder, "predict --tagger tagger.safetensors jets.root --out scores", 1)
    assert code == 5
    assert errors.splitlines()[-1] == "partt: error: cannot write the output: No space left on device"
    assert (folder / "scores" / "predict.json").exists()


def test_training_with_closed_streams(folder):
    command = f"{sys.executable} -m partt {TRAIN} --threads 1 <&- >&- 2>&-"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=False).returncode == 0
    assert (folder / "run" / "best.safetensors").exists()


def test_an_encoding_without_the_characters_of_a_message(folder):
    result = subprocess.run(
        [sys.executable, "-m", "partt", "check", "jetclass_kin", "jéts.root"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 3
    assert rb"j\xe9ts.root" in result.stderr + result.stdout
    assert b"Traceback" not in result.stderr


def test_output_of_calls_in_python_goes_where_it_went(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["check", "jetclass_kin", "jets.root"]) == 0
    assert "ready" in capsys.readouterr().out
