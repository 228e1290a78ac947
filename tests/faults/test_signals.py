"""Signals as batch systems send them: to every process of a job, several kinds, several times."""

import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import yaml
from test_distributed import torchrun
from test_faults import in_child, wait_for
from test_fit import assert_same_run

from forked_commands import start_partt
from jets import write_jets
from partt.data.reading import batches
from partt.errors import ConfigError, OutputError
from partt.jobs import stop_signals
from partt.jobs.stop_signals import stop_on_signal
from partt.training.events import StepDone
from partt.training.fit import Machine, fit
from partt.training.run_folder import locked_run_folder
from prediction_jobs import saved_tagger
from training_jobs import TINY_RECIPE, run_job, tiny_job


def train_with_readers(job, out, resume=False):
    """Train in a process group of its own, with two reading processes; end with the command's exit code."""
    os.setpgid(0, 0)
    stop_signals.REPEAT = 60  # a busy machine may take a second between two signals
    with stop_on_signal() as should_stop, locked_run_folder(out) as folder:

        def report(event):
            if isinstance(event, StepDone):
                time.sleep(0.01)  # readers are alive while signals arrive
                (out / "readers").write_text(
                    " ".join(str(child.pid) for child in multiprocessing.active_children())
                )

        machine = Machine(torch.device("cpu"), num_workers=2)
        result = fit(job, folder, machine, resume=resume, report=report, should_stop=should_stop)
    os._exit(75 if result.stopped else 0)


def steps_done(out: Path) -> int:
    metrics = out / "metrics.jsonl"
    return metrics.read_text().count("\n") if metrics.exists() else 0


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_process_group_saves_and_resumes(jet_file, tmp_path, number):
    job = tiny_job(jet_file, epochs=4)
    child = in_child(train_with_readers, job, tmp_path / "run")
    wait_for(lambda: steps_done(tmp_path / "run") > 4)
    os.killpg(child.pid, number)
    time.sleep(0.05)
    os.killpg(child.pid, number)  # torchrun and shells pass on what their children received already
    child.join(100)
    assert child.exitcode == 75
    assert list((tmp_path / "run" / "checkpoints").glob("*.json"))
    readers = (tmp_path / "run" / "readers").read_text().split()
    wait_for(lambda: not any(map(is_running, readers)))
    if number == signal.SIGTERM:
        run_job(job, tmp_path / "whole")
        run_job(job, tmp_path / "run", resume=True)
        assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_after_sigkill_a_resume_starts_at_once(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=200)
    child = in_child(train_with_readers, job, tmp_path / "run")
    wait_for(lambda: steps_done(tmp_path / "run") > 3)
    child.kill()
    child.join()
    with locked_run_folder(tmp_path / "run"):  # no reader holds the lock
        pass
    readers = (tmp_path / "run" / "readers").read_text().split()
    assert readers
    wait_for(lambda: not any(map(is_running, readers)))


def wait_ignoring_hangups(ready):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with stop_on_signal() as should_stop:
        ready.touch()
        while not should_stop():
            time.sleep(0.01)
    os._exit(75)


def test_nohup_is_heeded(tmp_path):
    child = in_child(wait_ignoring_hangups, tmp_path / "ready")
    wait_for((tmp_path / "ready").exists)
    os.kill(child.pid, signal.SIGHUP)
    time.sleep(0.2)
    assert child.is_alive()
    child.terminate()
    child.join(60)
    assert child.exitcode == 75


def slow_training(job, out):
    original = batches.read_chunk

    def read_slowly(*arguments):
        if (out / "metrics.jsonl").exists() and steps_done(out) > 2:
            time.sleep(120)
        return original(*arguments)

    batches.read_chunk = read_slowly
    train_with_readers(job, out)


def test_a_signal_ends_the_wait_for_a_slow_reader(jet_file, tmp_path, monkeypatch):
    monkeypatch.setattr(
        batches.training_batches,
        "__kwdefaults__",
        {**batches.training_batches.__kwdefaults__, "unit_jets": 32},
    )
    job = tiny_job(jet_file, epochs=50, accumulate=2)
    child = in_child(slow_training, job, tmp_path / "run")
    wait_for(lambda: steps_done(tmp_path / "run") > 2)
    time.sleep(0.5)
    os.killpg(child.pid, signal.SIGTERM)
    child.join(60)
    assert child.exitcode == 75
    run_job(
        tiny_job(jet_file, epochs=50, accumulate=2), tmp_path / "run", resume=True, should_stop=lambda: True
    )


def test_a_lock_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "lock").write_text("my notes\n")
    with pytest.raises(ConfigError, match="is not partt's"), locked_run_folder(tmp_path):
        pass
    assert (tmp_path / "lock").read_text() == "my notes\n"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "lock")
    with pytest.raises(OutputError, match="cannot write to"), locked_run_folder(tmp_path / "run"):
        pass
    assert (tmp_path / "lock").read_text() == "my notes\n"


def start_command(folder, *arguments):
    pipe = subprocess.PIPE
    return start_partt(arguments, cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_the_command_saves_when_its_process_group_is_signalled(jet_file, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY_RECIPE))
    arguments = ["train", "tiny.yaml", "--train", str(jet_file), "--val-fraction", "0.2", "--out", "run"]
    arguments += ["--workers", "2", "--set", "epochs=5000", "--set", "patience=5000"]
    process = start_command(tmp_path, *arguments)
    wait_for(lambda: steps_done(tmp_path / "run") > 2, seconds=100)
    os.killpg(process.pid, signal.SIGTERM)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 75, errors
    assert "everything is saved; --resume continues" in output
    assert "Traceback" not in errors


def test_prediction_ends_with_75_when_its_process_group_is_signalled(tmp_path):
    saved_tagger(tmp_path / "tagger.safetensors")
    write_jets(tmp_path / "jets.root", 100)
    copies = [tmp_path / f"jets_{number}.root" for number in range(120)]
    for copy in copies:
        copy.hardlink_to(tmp_path / "jets.root")
    process = start_command(tmp_path, "predict", "--tagger", "tagger.safetensors", *map(str, copies))
    wait_for(lambda: any((tmp_path / "scores").glob("*.root")), seconds=100)
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 75, errors
    assert "Traceback" not in errors
    assert not list((tmp_path / "scores").glob(".*.root*"))


def test_torchrun_saves_when_every_process_is_signalled(jet_file, tmp_path):
    arguments = ("--train", str(jet_file), "--val-fraction", "0.2", "--out", "run")
    process = torchrun(tmp_path, *arguments, "--set", "epochs=2000", "--set", "patience=2000")
    wait_for(lambda: steps_done(tmp_path / "run") > 2, seconds=100)
    process.terminate()  # torchrun passes it on
    output, _ = process.communicate(timeout=100)
    assert "everything is saved; --resume continues" in output
    assert list((tmp_path / "run" / "checkpoints").glob("*.json"))
