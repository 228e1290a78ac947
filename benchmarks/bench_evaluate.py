"""Time and peak memory of `partt evaluate` on many jets of ten classes: made-up scores, the whole report.

usage: python benchmarks/bench_evaluate.py [--jets N] [--weights] [--json FILE]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
CHUNK = 250_000


def make_tables(num_jets: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield chunks of predictions of a good tagger."""
    random = np.random.default_rng(1)
    for first in range(0, num_jets, CHUNK):
        size = min(CHUNK, num_jets - first)
        labels = random.integers(0, len(CLASSES), size)
        logits = random.normal(0, 1.5, (size, len(CLASSES))).astype(np.float32)
        logits[np.arange(size), labels] += 4.5
        odds = np.exp(logits)
        scores = odds / odds.sum(axis=1, keepdims=True)
        yield {
            **{f"score_{name}": scores[:, number].copy() for number, name in enumerate(CLASSES)},
            **{f"label_{name}": (labels == number).astype(np.int32) for number, name in enumerate(CLASSES)},
            "jet_pt": random.uniform(500, 1000, size).astype(np.float32),
            "jet_eta": random.normal(0, 0.8, size).astype(np.float32),
            "jet_sdmass": random.gamma(3, 30, size).astype(np.float32),
            "weight": random.exponential(1, size).astype(np.float32),
            "selected": np.ones(size, dtype=bool),
        }


def measure(path: Path, *options: str) -> dict[str, float]:
    """Run the command; return seconds and bytes."""
    command = [
        sys.executable,
        "-m",
        "partt",
        "evaluate",
        str(path),
        "--out",
        str(path.parent / "report"),
        *options,
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_megabytes": round(after.ru_maxrss / 1024),
    }


def main() -> None:
    """Make the scores, evaluate them, print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jets", type=int, default=10_000_000)
    parser.add_argument("--weights", action="store_true", help="with weights too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from partt.data.files.tables import write_table

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.root"
        write_table(path, make_tables(options.jets))
        found: dict[str, float | str] = {"jets": options.jets, "classes": len(CLASSES)}
        found |= measure(path, *(["--weights", "weight"] if options.weights else []))
    print(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
