"""Two processes train one network, with gloo on the CPU."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from test_faults import in_child, wait_for
from test_fit import assert_same_run, metrics_of, stop_after, tensors_of

from conftest import ROOT, free_port
from partt.errors import ConfigError
from partt.jobs.local_ranks import MEETING_FILE
from partt.training.distributed import World, connected, world_from_environment
from partt.training.fit import Machine, fit
from partt.training.run_folder import RunFolder
from partt.training.steps import count_steps
from small_networks import SMALL_SLIM
from training_jobs import TINY_RECIPE, run_job, tiny_job


def run_rank(rank, port, job, out, stop_at, options):
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    world = world_from_environment()
    device = torch.device("cpu")
    should_stop = stop_after(stop_at) if rank == 1 else lambda: False
    with connected(world, device):
        result = fit(job, RunFolder(out), Machine(device, world), should_stop=should_stop, **options)
        states = world.gather(result.state)
        assert states[0] == states[1]
    os._exit(75 if result.stopped else 0)


def run_two(job, out, stop_at=10**9, **options):
    """Train in two processes; return their exit codes."""
    port = free_port()
    children = [in_child(run_rank, rank, port, job, out, stop_at, options) for rank in range(2)]
    for child in children:
        child.join(250)  # less than pytest allows a test
    return [child.exitcode for child in children]


def test_two_processes_leave_one_run(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=2, validation_jets_per_epoch=41)
    assert run_two(job, tmp_path) == [0, 0]
    epochs = [line for line in metrics_of(tmp_path) if line["kind"] == "epoch"]
    assert [line["step"] for line in epochs] == [6, 12]
    assert epochs[0]["validation_num_jets"] == 41 < job.validation_index.num_jets
    definition = json.loads((tmp_path / "run.json").read_text())
    assert definition["processes"] == 2
    assert (tmp_path / "best.safetensors").exists()
    with pytest.raises(ConfigError, match="processes: 2 before, 1 now"):
        run_job(job, tmp_path, resume=True)


@pytest.mark.parametrize("model", [{"name": "pfn"}, {"name": "slim_m", "settings": SMALL_SLIM}])
def test_two_processes_compute_the_gradient_of_the_whole_batch(jet_file, tmp_path, model):
    """Without BatchNorm and dropout, and with a batch that is a whole pass, the share of each does not matter."""
    num_jets = tiny_job(jet_file).train_index.num_jets
    assert num_jets % 2 == 0
    settings = {"model": model, "batch_size": num_jets, "steps": 3, "epochs": None}
    job = tiny_job(jet_file, **settings, optimizer={"name": "ranger", "lr": 1e-2})
    run_job(job, tmp_path / "one")
    assert run_two(job, tmp_path / "two") == [0, 0]
    one, two = tensors_of(tmp_path / "one"), tensors_of(tmp_path / "two")
    for name in one:
        if name.startswith("network/") and name.endswith(("weight", "bias")):
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-5)


def assert_two_processes_resume_exactly(job, folder, stops):
    """Train at once, and stopped after each of some steps; all must leave the same run."""
    assert run_two(job, folder / "whole") == [0, 0]
    for step in stops:
        parts = folder / f"stopped after {step}"
        # the second process alone is told to stop: both stop after the same step
        assert run_two(job, parts, stop_at=step) == [75, 75]
        assert run_two(job, parts, resume=True) == [0, 0]
        assert_same_run(parts, folder / "whole")


def test_resuming_two_processes_is_exact(jet_file, tmp_path):
    assert_two_processes_resume_exactly(tiny_job(jet_file, epochs=2, accumulate=2), tmp_path, stops=[4])


def test_shares_are_equal_although_jets_do_not_divide(jet_file):
    job = tiny_job(jet_file, jets_per_epoch=None)
    totals = {count_steps(job.recipe, job.train_index, size).num_steps for size in (1, 2, 4)}
    assert len(totals) == 1
    with pytest.raises(ConfigError, match="cannot be shared by 3 processes"):
        count_steps(job.recipe, job.train_index, 3)


def test_one_process_is_a_world_of_its_own(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = world_from_environment()
    assert world == World()
    assert world.any(True, False) == (True, False)
    assert world.gather("x") == ["x"]


def torchrun(folder, *arguments):
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY_RECIPE))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    command += [str(free_port()), "-m", "partt", "train", "tiny.yaml", "--workers", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, directly or not."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in listing.splitlines()]
    direct = [child for child, parent in parents if parent == pid]
    return direct + [inner for child in direct for inner in children_of(child)]


@pytest.mark.slow
def test_torchrun_and_a_dead_process_ends_all(jet_file, tmp_path):
    arguments = ("--train", str(jet_file), "--val-fraction", "0.2", "--out", "run")
    process = torchrun(tmp_path, *arguments, "--set", "epochs=2000", "--set", "patience=2000")
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 2)
    ranks = children_of(process.pid)
    assert len(ranks) >= 2
    os.kill(ranks[1], signal.SIGKILL)
    output, _ = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "2 processes x 1 thread" in output
    assert output.count("training: ") == 1  # one process reports
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', not a number; start several processes with torchrun"),
        ({"WORLD_SIZE": "2"}, "RANK is '', not a number"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "cannot be connected: .*MASTER_ADDR expected, but not set"),
    ],
)
def test_variables_of_torchrun_that_are_wrong(variables, message, monkeypatch):
    """Batch systems set some of them: that was a KeyError or a ValueError with its traceback."""
    for name in ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", MEETING_FILE):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with (
        pytest.raises(ConfigError, match=message),
        connected(world_from_environment(), torch.device("cpu")),
    ):
        pass


@pytest.mark.parametrize("text", ["", "1"])
def test_a_world_of_one_process(text, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", text)
    assert world_from_environment() == World()
