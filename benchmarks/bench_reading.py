"""Jets per second from ROOT files to training batches: partt, weaver-core's loader, raw uproot as the limit.

Everything runs on one core; jets are counted per second of its time (of the process, threads included), which
a busy machine changes less than the clock. The files are in the page cache after a process's first epoch
(`cold`). Each measurement is a separate process; they are interleaved, and medians are compared. `--vertices`
reads made-up jets with particles and secondary vertices, of sizes as in CMS, instead of JetClass.

usage: python benchmarks/bench_reading.py [--files GLOB | --vertices] [--rounds N] [--json FILE]
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
CONFIG = "jetclass_full"
BATCH_SIZE = 512

NUM_FILES, JETS_PER_FILE, JETS_PER_BASKET = 4, 50_000, 10_000  # with vertices
PF = ("pt_log", "e_log", "etarel", "phirel", "abseta", "charge", "quality", "normchi2", "dz", "dzsig", "dxy",
      "dxysig", "px", "py", "pz", "energy")  # fmt: skip
SV = ("pt_log", "mass", "etarel", "phirel", "abseta", "ntracks", "normchi2", "dxysig", "d3dsig",
      "px", "py", "pz", "energy")  # fmt: skip
VECTORS = ("px", "py", "pz", "energy")


def jets_with_vertices(num_jets: int, seed: int) -> dict[str, Any]:
    """Return made-up jets; values have few digits, so that they can be compressed."""
    import numpy as np

    from partt.data.jagged import Jagged

    random = np.random.default_rng(seed)
    label = random.integers(0, 2, num_jets)
    table = {f"label_{name}": (label == n).astype(np.int32) for n, name in enumerate(("b", "light"))}
    for prefix, names, mean in (("pf", PF, 25), ("sv", SV, 0.8)):
        offsets = np.concatenate([[0], np.cumsum(random.poisson(mean, num_jets))])
        for name in names:
            values = np.round(random.normal(0, 1, offsets[-1]), 2).astype(np.float32)
            table[f"{prefix}_{name}"] = Jagged(values, offsets)
    return table


def write_jets_with_vertices(folder: Path) -> str:
    """Write made-up jets and their data config; return the glob of the files."""
    from partt.data.files.tables import write_table

    num_baskets = JETS_PER_FILE // JETS_PER_BASKET
    for number in range(NUM_FILES):
        seeds = range(number * num_baskets, (number + 1) * num_baskets)
        write_table(folder / f"{number}.root", (jets_with_vertices(JETS_PER_BASKET, seed) for seed in seeds))
    groups = [f"  {prefix}_mask: ak.ones_like({prefix}_px)" for prefix in ("pf", "sv")]
    text = "new_variables:\n" + "\n".join(groups) + "\ninputs:\n"
    for prefix, names, length in (("pf", PF, 50), ("sv", SV, 5)):
        features = ", ".join(f"[{prefix}_{name}, 0, 1]" for name in names if name not in VECTORS)
        vectors = ", ".join(f"[{prefix}_{name}, null]" for name in VECTORS)
        for part, variables in (("features", features), ("vectors", vectors), ("mask", f"{prefix}_mask")):
            text += f"  {prefix}_{part}: {{length: {length}, vars: [{variables}]}}\n"
    text += "labels: {type: simple, value: [label_b, label_light]}\n"
    (folder / "vertices.yaml").write_text(text)
    return str(folder / "*.root")


def measure_uproot(files: list[str], config_name: str) -> dict[str, float]:
    """Read the branches of the config with uproot into awkward arrays, file by file."""
    import uproot

    from partt.data.config.data_config import load_data_config
    from partt.data.variables import file_branches, names_for

    config = load_data_config(config_name)
    branches = sorted(file_branches(config, names_for(config, "train")))

    def read() -> int:
        num_jets = 0
        for file in files:
            with uproot.open(file) as opened:
                num_jets += len(opened["tree"].arrays(branches))
        return num_jets

    read()
    return {"uproot": statistics.median(_rate(read) for _ in range(3))}


def measure_weaver(files: list[str], config_name: str) -> dict[str, float]:
    """Iterate over weaver's training loader."""
    import logging

    from torch.utils.data import DataLoader
    from weaver.utils.dataset import SimpleIterDataset

    from partt.config import shipped_file

    logging.disable()
    config = Path(tempfile.mkdtemp()) / "config.yaml"  # weaver writes beside it
    shutil.copy(shipped_file("data_configs", config_name), config)
    groups = {Path(file).stem: [file] for file in files}

    def epoch() -> int:
        dataset = SimpleIterDataset(groups, str(config), for_training=True, fetch_step=1, async_load=False)
        loader = DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=0)
        return sum(len(next(iter(labels.values()))) for _, labels, _ in loader)

    return {
        "weaver, cold": _rate(epoch),
        "weaver, second epoch": statistics.median(_rate(epoch) for _ in range(3)),
    }


def measure_partt(files: list[str], config_name: str) -> dict[str, float]:
    """Take passes of partt's training batches; a first pass includes opening and indexing the files."""
    from itertools import islice

    from partt.data.config.data_config import load_data_config
    from partt.data.files.cache import FILE_CACHE
    from partt.data.files.lists import expand_files
    from partt.data.reading.batches import training_batches
    from partt.data.reading.jet_index import build_index
    from partt.data.reading.jet_source import open_source

    config = load_data_config(config_name)
    inputs = expand_files(files)
    cache = Path(tempfile.mkdtemp())

    def batches(folder: Path | None = None) -> tuple[Any, int]:
        FILE_CACHE.trees.clear()  # a cold start in one process
        FILE_CACHE.tree_shapes.clear()
        source = open_source(inputs, config, cache=folder)
        index = build_index(source)
        return training_batches(source, index, batch_size=BATCH_SIZE, seed=0), index.num_jets // BATCH_SIZE

    def one_pass(stream: Iterable[Any], num_batches: int) -> int:
        return sum(len(batch) for batch in islice(stream, num_batches))

    result = {
        "partt, cold": _rate(lambda: one_pass(*batches())),
        "partt, first pass": statistics.median(_rate(lambda: one_pass(*batches())) for _ in range(3)),
        "partt, first pass, writing the cache": _rate(lambda: one_pass(*batches(cache))),
    }
    stream, num_batches = batches(cache)
    one_pass(stream, num_batches)
    result["partt, from the cache"] = statistics.median(
        _rate(lambda: one_pass(stream, num_batches)) for _ in range(9)
    )
    shutil.rmtree(cache)
    return result


def _rate(work: Callable[[], int]) -> float:
    started = time.process_time()
    num_jets = work()
    return num_jets / (time.process_time() - started)


MEASUREMENTS = {"uproot": measure_uproot, "weaver": measure_weaver, "partt": measure_partt}


def main() -> None:
    """Interleave the measurements, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--vertices", action="store_true", help="made-up jets with secondary vertices")
    parser.add_argument("--config", default=CONFIG, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.vertices:
        folder = Path(tempfile.mkdtemp())
        options.files, options.config = write_jets_with_vertices(folder), str(folder / "vertices.yaml")
    files = sorted(glob.glob(options.files))  # noqa: PTH207
    if options.child:
        print(json.dumps(MEASUREMENTS[options.child](files, options.config)))
        return
    if not files:
        sys.exit(f"no files match {options.files}: give some with --files")
    rates: dict[str, list[float]] = {}
    core = max(os.sched_getaffinity(0))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for _ in range(options.rounds):
        for name in MEASUREMENTS:
            command = [
                "taskset",
                "-c",
                str(core),
                sys.executable,
                __file__,
                "--child",
                name,
                "--files",
                options.files,
                "--config",
                options.config,
            ]
            output = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            ).stdout
            for key, rate in json.loads(output.splitlines()[-1]).items():
                rates.setdefault(key, []).append(rate)
    medians = {key: statistics.median(values) for key, values in rates.items()}
    if options.json:
        options.json.write_text(json.dumps(rates, indent=2))
    _print_table(medians)


def _print_table(medians: dict[str, float]) -> None:
    table = Table("one core", title="reading, jets/s")
    for heading in ("jets/s", "/ uproot", "/ weaver second epoch", "/ weaver cold"):
        table.add_column(heading, justify="right")
    for key, rate in medians.items():
        ratios = [rate / medians[other] for other in ("uproot", "weaver, second epoch", "weaver, cold")]
        table.add_row(key, f"{rate:,.0f}", *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
