"""A data set of JetClass's size, 100 M jets in 1 000 files: indexed, shuffled, cached, resumed.

What is made up: ten files, one for each class, of 100 000 jets each (those of --files, repeated), with all
branches and particles of JetClass, in baskets of 10 000 jets. Each has 100 names (hard links). Every name is
opened and parsed, all labels are read, and all jets of a unit are decompressed, as with 1 000 files; only the
disk is spared, since 1.5 GB stay in the system's memory. Whole passes and the cache are measured with 1 000
files of a few jets: a pass over 100 M jets takes hours, and its cache 500 GB.

Times are given by the clock and as CPU time, which other jobs on the machine hardly stretch. Memory is that
of the process, its reader and the jets on their way between them; what both use counts once.

usage: python benchmarks/bench_scale.py [--files GLOB] [--folder DIR] [--keep] [--names N] [--jets N]
       [--basket N] [--json FILE]
"""

import argparse
import glob
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from partt.data.reading.jet_index import JetIndex
    from partt.data.reading.jet_source import JetSource

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
CONFIG = "jetclass_full"
BATCH_SIZE = 512
JETS_PER_SMALL_FILE = 200
STREAMED_JETS = 500_000
NUM_PASSES = 3  # from files; three times as many from the cache
Found = dict[str, Any]


def make_files(pattern: str, folder: Path, num_names: int, num_jets: int, basket: int) -> None:
    """Write a file of jets for each file of a pattern, and give it its share of the names."""
    import numpy as np

    from partt.data.files.tables import inspect_file, read_columns, write_table
    from partt.data.jagged import take

    sources = sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207
    if not sources:
        sys.exit(f"no files match {pattern}: give some with --files")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        branches = [name for name in inspect_file(str(source)).branches if name != "npart"]
        jets = read_columns(str(source), branches)
        known = len(jets[branches[0]])

        def baskets(jets: dict[str, Any] = jets, known: int = known) -> Iterator[dict[str, Any]]:
            for first in range(0, num_jets, basket):
                numbers = np.arange(first, min(first + basket, num_jets)) % known
                yield {name: take(column, numbers) for name, column in jets.items()}

        original = folder / f"{source.stem}_original.root"
        write_table(original, baskets())
        for number in range(num_names // len(sources)):
            (folder / f"{source.stem}_{number:03d}.root").hardlink_to(original)


@contextmanager
def measured(found: Found, name: str) -> Iterator[None]:
    """Note seconds by the clock and of CPU time, of this process and of readers that end in the block."""
    started, cpu = time.perf_counter(), _cpu_seconds()
    yield
    found[name] = {
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(_cpu_seconds() - cpu, 2),
        "memory_mb": round(memory_mb()),
    }
    print(f"{name}: {found[name]}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


def _cpu_seconds(*, readers_only: bool = False) -> float:
    """Return the CPU time of readers, and of this process and its children that have ended."""
    ticks = os.sysconf("SC_CLK_TCK")
    running = 0.0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        running += (int(fields[11]) + int(fields[12])) / ticks
    if readers_only:
        return running
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + running


def memory_mb() -> float:
    """Return the memory of this process and its readers, and of jets on their way between them."""
    total, shared = 0, {}
    for process in ("self", *(child.pid for child in multiprocessing.active_children())):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
        total += sizes["Pss"] - sizes["Pss_Shmem"]
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # that of the list itself
                if str(descriptor.readlink()).startswith("/dev/shm/"):  # noqa: S108
                    found = descriptor.stat()
                    shared[found.st_ino] = found.st_blocks / 2
    return (total + sum(shared.values())) / 1e3


def wait_for_reader() -> None:
    """Wait until the reading process has no more to do."""
    before = -1.0
    while (now := _cpu_seconds(readers_only=True)) > before:
        before = now
        time.sleep(5)


def open_and_index(
    names: list[Path], found: Found, cache: Path | None = None
) -> "tuple[JetSource, JetIndex]":
    """Open and index files as `partt train` does."""
    from partt.data.config.data_config import load_data_config
    from partt.data.files.lists import InputFile
    from partt.data.reading.jet_index import build_index
    from partt.data.reading.jet_source import open_source

    config = load_data_config(CONFIG)
    files = [InputFile("", str(name)) for name in names]  # `expand_files` refuses names of the same file
    with measured(found, "open"):
        source = open_source(files, config, cache=cache)
    with measured(found, "index"):
        index = build_index(source)
    found |= {"files": len(names), "jets": index.num_jets, "chunks": len(index.chunks)}
    return source, index


def read_on(batches: Iterator[Any], num_jets: int, found: Found, name: str) -> None:
    """Read jets, and note the memory after every twentieth of them."""
    memory = []
    num_batches = num_jets // BATCH_SIZE
    with measured(found, name):
        for number in range(num_batches):
            next(batches)
            if number % (num_batches // 20) == 0:
                memory.append(round(memory_mb()))
    found[name] |= {"jets": num_batches * BATCH_SIZE, "memory_mb": memory}


def measure_scale(folder: Path) -> Found:
    """Read some units of all jets: from the start, and from 90 % of a pass."""
    from partt.data.reading.batches import training_batches
    from partt.training.job import reference_jets, training_domain, typical_jets

    found: Found = {}
    source, index = open_and_index(_names(folder / "large"), found)
    with measured(found, "first batch"):
        batches: Any = training_batches(source, index, batch_size=BATCH_SIZE, seed=1, num_workers=1)
        next(batches)
    with measured(found, "reader is ahead"):  # as in a training, whose network is slower than the reader
        wait_for_reader()
    read_on(batches, STREAMED_JETS, found, "streaming")
    batches.close()
    with measured(found, "first batch at 90 % of a pass"):
        first = index.num_jets * 9 // 10 // BATCH_SIZE
        batches = training_batches(
            source, index, batch_size=BATCH_SIZE, seed=1, first_batch=first, num_workers=1
        )
        next(batches)
    batches.close()
    with measured(found, "jets for the tagger file"):  # what `partt train` reads before its first step
        reference_jets(source, index, ())
        training_domain(source, index)
        typical_jets(source, index)
    return found


def measure_passes(folder: Path, *, cached: bool) -> Found:
    """Read whole passes over many files of few jets."""
    from partt.data.reading.batches import training_batches

    found: Found = {}
    source, index = open_and_index(_names(folder / "small"), found, folder / "cache" if cached else None)
    batches = training_batches(source, index, batch_size=BATCH_SIZE, seed=1, num_workers=1)
    for number in range(1, (3 if cached else 1) * NUM_PASSES + 1):
        read_on(batches, index.num_jets, found, f"pass {number}")
    return found


def _names(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if "original" not in path.name)


MEASUREMENTS: dict[str, Callable[[Path], Found]] = {
    "scale": measure_scale,
    "passes": partial(measure_passes, cached=False),
    "cached passes": partial(measure_passes, cached=True),
}


def main() -> None:
    """Make the files, measure in processes of their own, and print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--folder", type=Path, help="for 2.5 GB of files (default: a temporary one)")
    parser.add_argument(
        "--keep", action="store_true", help="use the files that are in the folder, and keep them"
    )
    parser.add_argument("--names", type=int, default=1_000, help="number of files (default: 1000)")
    parser.add_argument("--jets", type=int, default=100_000, help="in a file (default: 100000)")
    parser.add_argument("--basket", type=int, default=10_000, help="jets in a basket (default: 10000)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(MEASUREMENTS[options.child](options.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (options.keep and (folder / "small").exists()):
            make_files(options.files, folder / "large", options.names, options.jets, options.basket)
            make_files(options.files, folder / "small", options.names, JETS_PER_SMALL_FILE, options.basket)
        shutil.rmtree(folder / "cache", ignore_errors=True)
        results: Found = {name: _measured_in_child(name, folder) for name in MEASUREMENTS}
        if not options.keep:
            for name in ("large", "small", "cache"):
                shutil.rmtree(folder / name, ignore_errors=True)
    results["load"] = list(os.getloadavg())
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    _print_table(results)


def _measured_in_child(name: str, folder: Path) -> Found:
    command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: Found = json.loads(child.stdout.splitlines()[-1])
    return found


def _print_table(results: dict[str, Any]) -> None:
    table = Table("", title=f"load {results['load'][0]:.1f}")
    for heading in ("seconds", "CPU seconds", "jets/s", "jets/CPU s", "memory, MB"):
        table.add_column(heading, justify="right")
    for found in (results[name] for name in MEASUREMENTS):
        table.add_row(f"{found['files']:,} files, {found['jets']:,} jets, {found['chunks']:,} chunks")
        for name, values in found.items():
            if not isinstance(values, dict):
                continue
            jets = found["jets"] if name == "index" else values.get("jets")
            times = values["seconds"], values["cpu_seconds"]
            rates = ("" if jets is None else f"{jets / seconds:,.0f}" for seconds in times)
            memory = values["memory_mb"]
            shown = f"{memory:,}" if isinstance(memory, int) else f"{min(memory):,} - {max(memory):,}"
            table.add_row(f"  {name}", *(f"{seconds:.1f}" for seconds in times), *rates, shown)
    Console().print(table)


if __name__ == "__main__":
    main()
