"""benchmarks/bench_gpu.py, which nobody here can run on a GPU, runs on a CPU with a few jets."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_gpu.py"


def test_the_script_prints_a_table_and_writes_its_numbers(tmp_path):
    path = tmp_path / "gpu.json"
    options = [
        "--device",
        "cpu",
        "--batch-sizes",
        "2",
        "--rounds",
        "1",
        "--seconds",
        "0",
        "--json",
        str(path),
    ]
    command = [sys.executable, "-W", "ignore", str(SCRIPT), *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert run.returncode == 0, run.stderr
    table = run.stdout.split("\n\n")[-1].splitlines()
    assert table[0].startswith("| | precision | batch | partt, jets/s | weaver, jets/s |")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[2:]]
    assert [row[:3] for row in rows] == [["training", "float32", "2"], ["inference", "float32", "2"]]
    assert all(re.fullmatch(r"[\d,]+", cell) for row in rows for cell in row[3:5])
    numbers = json.loads(path.read_text())
    assert numbers["machine"]["device"] == "CPU"
    for result in numbers["results"]:
        assert result["partt_jets_per_second"][0] > 0
        assert result["weaver_jets_per_second"][0] > 0
        assert result["partt_gigabytes"] is None


def test_what_torch_says_of_its_search_for_waits_is_no_wait(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    from bench_gpu import num_waits

    def set_sync_debug_mode(mode):
        warnings.warn(
            "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations",
            stacklevel=2,
        )

    def step():
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally at ...)", stacklevel=2)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_sync_debug_mode)
    assert num_waits(step, torch.device("cuda")) == 2
    assert num_waits(step, torch.device("cpu")) is None
