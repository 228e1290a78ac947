"""`partt train --processes`: several processes of one machine are one command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from test_faults import in_child, wait_for
from test_fit import assert_same_run

from conftest import free_port
from forked_commands import start_partt
from partt.cli.main import main
from partt.errors import DataError
from partt.jobs import local_ranks
from partt.jobs.local_ranks import GRACE, run_ranks
from partt.jobs.stop_signals import REPEAT, stop_on_signal
from partt.training import fit
from small_networks import SMALL
from training_jobs import TINY_RECIPE

PFN = {"name": "pfn", "settings": {key: list(value) for key, value in SMALL["pfn"][1].items()}}
LONG = ("--set", "epochs=4", "--set", "checkpoint_minutes=0")

PROGRESS = ("opening: ", "epoch ", "validating: ")  # lines on standard error of slow machines


@pytest.fixture
def folder(tmp_path, monkeypatch, jet_file):
    """Enter a folder with a recipe and jets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    write_recipe(tmp_path)
    (tmp_path / "jets.root").symlink_to(jet_file)
    return tmp_path


def words(*more):
    jets = ("--train", "jets.root", "--val-fraction", "0.25", "--workers", "0")
    return ["train", "tiny.yaml", *jets, *more]


def write_recipe(path):
    (path / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "model": PFN, "epochs": 1}))


def no_curves():
    fit.draw_curves = lambda *_: None  # it would take longer than all the rest


def slow_steps():
    """Let a run wait for what is done to it, after some steps."""
    no_curves()
    original = fit.take_step

    def take_step(learner, batches, step, *rest):
        time.sleep(0.5 if step > 4 else 0)
        return original(learner, batches, step, *rest)

    fit.take_step = take_step


def start(*more, prepare=no_curves):
    pipe = subprocess.PIPE
    return start_partt(
        words("--processes", "2", *more), prepare, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def ended(process, seconds=100):
    """Return exit code, output and errors of a command, without its progress; nothing of it may still run."""
    output, errors = process.communicate(timeout=seconds)
    wait_for(lambda: not of_session(process.pid))
    lines = [line for line in errors.splitlines(keepends=True) if not line.startswith(PROGRESS)]
    return process.returncode, output, "".join(lines)


def of_session(leader):
    """Return the processes of a session that are not dead, in the order in which they were started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if session == str(leader) and state != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def wait_for_steps(out, number=3):
    metrics = Path(out) / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > number)


def under_torchrun(rank, port):
    def prepare():
        no_curves()
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    return prepare


def test_one_command_is_the_run_of_torchrun(folder):
    (folder / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 1}))  # dropout, BatchNorm
    code, output, errors = ended(start("--out", "one"))
    assert (code, errors) == (0, "")
    assert "cpu, 2 processes x 1 thread; " in output
    assert output.count("training: ") == 1
    port = free_port()
    ranks = [
        start_partt(
            words("--out", "two", "--threads", "1"), under_torchrun(rank, port), stdout=subprocess.DEVNULL
        )
        for rank in range(2)
    ]
    assert [rank.wait(100) for rank in ranks] == [0, 0]
    assert_same_run(folder / "one", folder / "two")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory, jet_file):
    """Return the folder of a longer run that was not stopped."""
    path = tmp_path_factory.mktemp("whole")
    write_recipe(path)
    (path / "jets.root").symlink_to(jet_file)
    command = words("--processes", "2", "--out", "run", *LONG)
    assert start_partt(command, no_curves, cwd=path, stdout=subprocess.DEVNULL).wait(100) == 0
    return path / "run"


def assert_resume_is_exact(folder, whole_run):
    code, _, errors = ended(start("--out", "run", *LONG, "--resume"))
    assert (code, errors) == (0, "")
    assert_same_run(folder / "run", whole_run)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_a_resume_is_exact(folder, whole_run, number):
    process = start("--out", "run", *LONG, prepare=slow_steps)
    wait_for_steps("run")
    if number == signal.SIGTERM:
        process.terminate()
    else:
        os.killpg(process.pid, number)  # Ctrl-C reaches all processes
    code, output, errors = ended(process)
    assert (code, errors) == (75, "")
    assert output.endswith("everything is saved; --resume continues\n")
    if number == signal.SIGTERM:
        assert_resume_is_exact(folder, whole_run)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_all_with_one_line(folder, whole_run, rank):
    process = start("--out", "run", *LONG, prepare=slow_steps)
    wait_for_steps("run")
    os.kill(of_session(process.pid)[1 + rank], signal.SIGKILL)
    code, _, errors = ended(process, seconds=GRACE + 90)
    assert code == 5
    assert errors.count("\n") == 1
    assert f"process {rank + 1} of 2 died of SIGKILL" in errors
    if rank == 1:
        assert_resume_is_exact(folder, whole_run)


def test_a_killed_parent_is_a_request_to_stop(folder):
    process = start("--out", "run", *LONG, prepare=slow_steps)
    wait_for_steps("run")
    process.kill()
    code, output, errors = ended(process)
    assert (code, errors) == (-signal.SIGKILL, "")
    assert output.endswith("everything is saved; --resume continues\n")


def fail_in_second_process():
    original = fit.take_step

    def take_step(*arguments):
        if os.environ["RANK"] == "1":
            raise DataError("jets.root is gone")
        return original(*arguments)

    fit.take_step = take_step


def test_the_error_of_another_process_is_the_one_that_is_shown(folder):
    code, _, errors = ended(start("--out", "run", prepare=fail_in_second_process))
    assert (code, errors) == (3, "partt: error: jets.root is gone\n")


def test_errors_of_all_processes_are_one_line(folder):
    code, _, errors = ended(start("--set", "batch_size=15"))
    assert code == 2
    assert errors.count("\n") == 1
    assert "batch_size 15 cannot be shared by 2 processes" in errors


def test_seeds_and_another_number_of_processes(folder, capsys):
    code, output, errors = ended(start("--out", "runs", "--seeds", "2"))
    assert (code, errors) == (0, "")
    assert "note: 2 seeds: validation accuracy" in output
    assert ended(start("--out", "one", "--seed", "2"))[0] == 0
    assert_same_run(folder / "runs" / "seed_2", folder / "one")
    assert main(words("--out", "one", "--seed", "2", "--threads", "1", "--resume")) == 2
    assert "processes: 2 before, 1 now" in capsys.readouterr().err


def test_torchrun_and_gpus_are_refused(folder, capsys, monkeypatch):
    def with_a_gpu():
        torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1

    code, _, errors = ended(start(prepare=with_a_gpu))
    assert code == 2
    assert errors.count("\n") == 1
    assert "--processes shares the cores of a CPU: add --device cpu; for several GPUs use torchrun" in errors
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(words("--processes", "2")) == 2
    assert "torchrun has done so (WORLD_SIZE is set): leave one of them out" in capsys.readouterr().err


# --- without a training ---


def in_ranks(work, *, code, message=""):
    ended = run_ranks(2, 1, work)
    assert (ended.exit_code, ended.message) == (code, message)
    sys.exit(0)


def is_first():
    return os.environ["RANK"] == "0"


def checked(work, **expected):
    """Run processes from a process of their own, and check how they ended."""
    child = in_child(in_ranks, work, **expected)
    child.join(100)
    assert child.exitcode == 0


def test_a_process_that_hangs_after_another_has_failed_is_ended(monkeypatch):
    monkeypatch.setattr(local_ranks, "GRACE", 0.2)

    def work():
        if is_first():
            time.sleep(200)
        sys.stderr.write("the disk is on fire\n")
        return 7

    checked(work, code=7, message="the disk is on fire")


def test_the_first_process_may_save_for_long_after_the_others_have_ended(monkeypatch):
    monkeypatch.setattr(local_ranks, "GRACE", 0.2)

    def work():
        time.sleep(1 if is_first() else 0)
        return 75

    checked(work, code=75)


def test_what_one_process_says_of_the_loss_of_another_is_not_the_reason():
    checked(lambda: local_ranks.LOST if is_first() else 4, code=4)
    checked(lambda: 0 if is_first() else local_ranks.LOST, code=0)


def test_a_second_signal_ends_all_at_once(tmp_path):
    def work():
        with stop_on_signal() as should_stop:
            (tmp_path / os.environ["RANK"]).touch()
            while True:
                time.sleep(0.01)
                if should_stop():
                    (tmp_path / f"asked_{os.environ['RANK']}").touch()

    child = in_child(in_ranks, work, code=128 + signal.SIGTERM)
    wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
    child.terminate()
    wait_for(lambda: len(list(tmp_path.iterdir())) == 4)
    time.sleep(REPEAT + 0.1)
    child.terminate()
    child.join(100)
    assert child.exitcode == 0
