"""Resident memory of a long training, step by step; it must be flat after the first steps.

Prints, every few steps, the resident memory of the training process, and how much of it malloc holds: bytes
in use by tensors and objects, and bytes that are free but kept (fragmentation). With
ONEDNN_PRIMITIVE_CACHE_CAPACITY=1024, oneDNN's default, it shows the growth that partt 0.1 had.

usage: python benchmarks/bench_memory.py [--files GLOB] [--steps N] [--batch N] [--every N] [--threads N]
       [--workers N] [--json FILE]
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
RECIPE = "jetclass_part_s"
WARM_UP = 0.1  # of the steps
FLAT = 0.03  # largest growth after warm-up


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")
    ] + [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


def memory_now() -> dict[str, float]:
    """Return resident memory, and bytes that malloc has in use and keeps free, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    found = mallinfo2()
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "in_use": (found.uordblks + found.hblkhd) / 1e6,
        "free": found.fordblks / 1e6,
    }


def train(options: argparse.Namespace) -> list[dict[str, float]]:
    """Train for some steps; return the memory after every few of them."""
    import torch

    from partt.data.config.data_config import load_data_config
    from partt.data.files.lists import expand_files
    from partt.training.events import Event, StepDone
    from partt.training.fit import Machine, fit
    from partt.training.job import open_job
    from partt.training.recipe import load_recipe
    from partt.training.run_folder import locked_run_folder

    torch.set_num_threads(options.threads)
    changes = [f"batch_size={options.batch}", f"steps={options.steps}", "epochs=null", "jets_per_epoch=null"]
    recipe = load_recipe(RECIPE, changes)
    curve: list[dict[str, float]] = []

    def report(event: Event) -> None:
        if isinstance(event, StepDone) and event.step % options.every == 0:
            curve.append({"step": event.step, **memory_now()})
            line = ", ".join(f"{name} {value:,.0f}" for name, value in curve[-1].items())
            print(f"{line} (MB)", flush=True)

    job = open_job(recipe, load_data_config(recipe.data_config), expand_files([options.files]), 0.1, seed=1)
    with tempfile.TemporaryDirectory() as out, locked_run_folder(out) as folder:
        machine = Machine(torch.device("cpu"), num_workers=options.workers)
        fit(job, folder, machine, report=report)
    return curve


def growth(curve: list[dict[str, float]], num_steps: int) -> float:
    """Return the growth of the resident memory after the warm-up, as a fraction."""
    later = [point["resident"] for point in curve if point["step"] >= WARM_UP * num_steps]
    return max(later) / later[0] - 1


def main() -> None:
    """Run the benchmark; exit with 1 if memory grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    curve = train(options)
    grown = growth(curve, options.steps)
    print(f"resident memory grew by {grown:.1%} after the first {WARM_UP:.0%} of the steps")
    if options.json:
        result: dict[str, Any] = {"recipe": RECIPE, "growth": grown, "curve": curve}
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    sys.exit(grown > FLAT)


if __name__ == "__main__":
    main()
