"""Resident memory of a long training: it must be flat after the first steps.

Trains as `partt train` does, with validation, checkpoints and a reading process, and notes every few steps
the memory of the training process: what is resident, and of that what is anonymous (tensors and objects) and
what is shared (batches from the reading process); what malloc has given to tensors and objects; what it keeps
free for the next ones, and in how many pieces. Exits with 1 if after the warm-up the highest resident memory
is more than 3 % above the lowest. ONEDNN_PRIMITIVE_CACHE_CAPACITY=1024, oneDNN's default, shows how it would
grow if training did not limit the number of compiled kernels.

usage: python benchmarks/bench_memory.py [--files GLOB] [--steps N] [--batch N] [--every N] [--threads N]
       [--json FILE]
"""

import argparse
import ctypes
import glob
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
RECIPE = "jetclass_part_s"
STEPS_PER_EPOCH = 250
WARM_UP = 500  # steps: two epochs
FLAT = 0.03  # the highest resident memory after the warm-up, above the lowest
Point = dict[str, float]


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks")
    ] + [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


def memory_now() -> Point:
    """Return the resident memory, and what malloc has in use and keeps free, in MB; and its free pieces."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    resident, anonymous, shared = (
        round(int(lines[name].split()[0]) * 1024 / 1e6, 1) for name in ("VmRSS", "RssAnon", "RssShmem")
    )
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo
    found = mallinfo2()
    return {
        "resident": resident,
        "anonymous": anonymous,
        "shared": shared,
        "in_use": round((found.uordblks + found.hblkhd) / 1e6, 1),
        "free": round(found.fordblks / 1e6, 1),
        "free_pieces": found.ordblks,
    }


def train(options: argparse.Namespace) -> list[Point]:
    """Train for some steps; return the memory after every few of them."""
    import partt
    from partt.training.events import Event, StepDone

    curve: list[Point] = []

    def report(event: Event) -> None:
        if isinstance(event, StepDone) and event.step % options.every == 0:
            cpu = round(time.process_time(), 1)
            curve.append({"step": event.step, **memory_now(), "cpu_seconds": cpu})
            print(", ".join(f"{name} {value:,}" for name, value in curve[-1].items()), flush=True)

    overrides = [f"batch_size={options.batch}", f"steps={options.steps}", "epochs=null"]
    overrides.append(f"jets_per_epoch={STEPS_PER_EPOCH * options.batch}")
    with tempfile.TemporaryDirectory() as out:
        partt.train(
            RECIPE,
            sorted(glob.glob(options.files)),  # noqa: PTH207
            validation=0.1,
            out=out,
            overrides=overrides,
            num_threads=options.threads,
            report=report,
        )
    return curve


def spread(curve: list[Point]) -> float:
    """Return how far the highest resident memory after the warm-up is above the lowest, as a fraction."""
    later = [point["resident"] for point in curve if point["step"] >= WARM_UP]
    return max(later) / min(later) - 1


def main() -> None:
    """Run the benchmark; exit with 1 if memory is not flat."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not glob.glob(options.files):  # noqa: PTH207
        sys.exit(f"no files match {options.files}: give some with --files")
    curve = train(options)
    found = spread(curve)
    print(f"resident memory after the first {WARM_UP} steps: highest {found:.1%} above the lowest")
    if options.json:
        settings = {"recipe": RECIPE, "batch_size": options.batch, "threads": options.threads}
        result: dict[str, Any] = {**settings, "warm_up": WARM_UP, "spread": found, "curve": curve}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.exit(found > FLAT)


if __name__ == "__main__":
    main()
