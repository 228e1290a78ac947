"""One epoch of the same jets with `partt train` and with weaver-core's loop, from files to new weights.

Both train the Particle Transformer on all features as published (Ranger, trimming), with the same batch size
and the same threads, each with its own loader in the training process. Processes alternate, so that a busy
machine affects both equally. A first epoch includes opening the files, and weaver does not trim its first
five batches; the second one is what a long run consists of. CPU time is that of the whole process, which
other jobs on the machine hardly stretch.

usage: python benchmarks/bench_training.py [--files GLOB] [--jets N] [--threads N] [--rounds N] [--json FILE]
"""

import argparse
import glob
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
RECIPE = "jetclass_part_full"
BATCH_SIZE = 128
EPOCHS = ("first epoch", "second epoch")
Seconds = dict[str, list[float]]  # "cpu" and "wall", of each epoch


def write_jets(pattern: str, num_jets: int, folder: Path) -> list[Path]:
    """Write the same number of jets of each file to new files."""
    from partt.data.files.tables import inspect_file, read_columns, write_table

    paths = sorted(map(Path, glob.glob(pattern)))  # noqa: PTH207
    if not paths:
        sys.exit(f"no files match {pattern}: give some with --files")
    for path in paths:
        branches = [name for name in inspect_file(str(path)).branches if name != "npart"]
        write_table(folder / path.name, read_columns(str(path), branches, 0, num_jets // len(paths)))
    return [folder / path.name for path in paths]


class Clock:
    """CPU and wall time between two moments."""

    def __init__(self) -> None:
        self.times: Seconds = {"cpu": [], "wall": []}
        self.start()

    def start(self) -> None:
        """Begin to measure."""
        self._started = {"cpu": time.process_time(), "wall": time.perf_counter()}

    def stop(self) -> None:
        """Note how long it took."""
        for name, now in (("cpu", time.process_time()), ("wall", time.perf_counter())):
            self.times[name].append(now - self._started[name])


def train_partt(files: list[Path]) -> Seconds:
    """Train for two epochs; validation is not measured."""
    import torch

    from partt.data.config.data_config import load_data_config
    from partt.data.files.lists import expand_files
    from partt.training.events import EpochEnded, Event, StepDone
    from partt.training.fit import Machine, fit
    from partt.training.job import open_job
    from partt.training.recipe import load_recipe
    from partt.training.run_folder import locked_run_folder

    num_jets = _num_jets(files)
    changes = [f"batch_size={BATCH_SIZE}", f"jets_per_epoch={num_jets}", "epochs=2"]
    recipe = load_recipe(RECIPE, changes)
    clock = Clock()

    def report(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == event.epoch_end:
            clock.stop()
        if isinstance(event, EpochEnded):
            clock.start()

    train, validation = (
        expand_files(map(str, files)),
        expand_files([str(files[0].parent.with_name("val.root"))]),
    )
    job = open_job(recipe, load_data_config(recipe.data_config), train, validation, seed=1)
    with tempfile.TemporaryDirectory() as out, locked_run_folder(out) as folder:
        fit(job, folder, Machine(torch.device("cpu")), report=report)
    return clock.times


def train_weaver(files: list[Path]) -> Seconds:
    """Train for two epochs with weaver's loader, network, optimizer and loop."""
    import torch
    from torch.utils.data import DataLoader
    from weaver.nn.model.ParticleTransformer import ParticleTransformer
    from weaver.utils.dataset import SimpleIterDataset
    from weaver.utils.nn.optimizer.ranger import Ranger
    from weaver.utils.nn.tools import train_classification

    from partt.config import shipped_file

    class Network(torch.nn.Module):
        """The network with the inputs in the order of the data config."""

        def __init__(self) -> None:
            super().__init__()
            self.mod = ParticleTransformer(
                17, num_classes=10, use_pre_activation_pair=False, fc_params=[], trim=True
            )

        def forward(self, points, features, momenta, mask):
            del points
            return self.mod(features, v=momenta, mask=mask)

    torch.manual_seed(1)
    network = Network()
    optimizer = Ranger(network.parameters(), lr=1e-3)
    config = files[0].with_name("config.yaml")  # weaver writes beside it
    shutil.copy(shipped_file("data_configs", "jetclass_full"), config)
    arguments = {"args": argparse.Namespace(use_amp=False, amp_dtype="bf16")}
    clock = Clock()
    groups = {path.stem: [str(path)] for path in files}
    dataset = SimpleIterDataset(
        groups, str(config), batch_size=BATCH_SIZE, for_training=True, fetch_step=1, name="train"
    )
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, drop_last=True, num_workers=0)
    for epoch in range(2):
        loss = torch.nn.CrossEntropyLoss()
        train_classification(
            network, loss, optimizer, None, loader, torch.device("cpu"), epoch, extra_args=arguments
        )
        clock.stop()
        clock.start()
    return clock.times


def _num_jets(files: list[Path]) -> int:
    from partt.data.files.tables import inspect_file

    return sum(inspect_file(str(path)).num_entries for path in files) // BATCH_SIZE * BATCH_SIZE


TRAINERS = {"partt": train_partt, "weaver": train_weaver}


def main() -> None:
    """Alternate between the two, and print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--jets", type=int, default=1000, help="of an epoch (default: 1000)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=TRAINERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _run_child(options)
        return
    results: dict[str, list[Seconds]] = {name: [] for name in TRAINERS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "jets").mkdir()
        num_jets = _num_jets(write_jets(options.files, options.jets, folder / "jets"))
        shutil.copy(next((folder / "jets").iterdir()), folder / "val.root")  # is not measured
        for _ in range(options.rounds):
            for trainer in TRAINERS:
                results[trainer].append(_child(trainer, folder / "jets", options))
    if options.json:
        options.json.write_text(json.dumps({"jets": num_jets, "seconds": results}, indent=2) + "\n")
    _print_table(results, num_jets, options.threads)


def _run_child(options: argparse.Namespace) -> None:
    import torch

    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    files = sorted(Path(options.files).glob("*.root"))
    print(json.dumps(TRAINERS[options.child](files)))


def _child(trainer: str, folder: Path, options: argparse.Namespace) -> Seconds:
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    command = [sys.executable, __file__, "--child", trainer, "--files", str(folder)]
    command += ["--threads", str(options.threads)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(child.stderr)
    seconds: Seconds = json.loads(child.stdout.splitlines()[-1])
    return seconds


def _print_table(results: dict[str, list[Seconds]], num_jets: int, threads: int) -> None:
    table = Table(
        "", title=f"{num_jets} jets, batch {BATCH_SIZE}, {threads} thread{'s' * (threads > 1)}: jets/s"
    )
    for heading in ("partt", "weaver", "partt / weaver"):
        table.add_column(heading, justify="right")
    for number, epoch in enumerate(EPOCHS):
        for clock in ("cpu", "wall"):
            rates = {
                name: num_jets / statistics.median(run[clock][number] for run in runs)
                for name, runs in results.items()
            }
            ratio = rates["partt"] / rates["weaver"]
            table.add_row(
                f"{epoch}, {clock} time", *(f"{rate:.1f}" for rate in rates.values()), f"{ratio:.2f}"
            )
    Console().print(table)


if __name__ == "__main__":
    main()
