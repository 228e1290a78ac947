"""benchmarks/bench_gpu.py, which nobody here can run on a GPU, runs on a CPU with a few jets."""

import json
import re
import subprocess
import sys
from pathlib import Path

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
