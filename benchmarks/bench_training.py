"""One epoch of the same jets with `partt train` and with weaver-core's loop, from files to new weights.

Both train the Particle Transformer on all features as published (Ranger, trimming), with the same batch size
and the same threads, each with its own loader in the training process. Processes alternate, so that a busy
machine affects both equally. A first epoch includes opening the files, and weaver does not trim its first
five batches; the second one is what a long run consists of. CPU time is that of the whole process, which
other jobs on the machine hardly stretch.

With `--processes N` it is partt alone that trains, in four ways that alternate: one thread, N threads, N
processes of one thread (`partt train --processes N`), and N trainings of one thread side by side, which share
nothing but the machine and so show the most that N processes could reach. The speed-up by the clock is what
counts, on idle cores. That by CPU time, N x the CPU time of one thread / that of all processes, hardly
depends on other jobs, but leaves out that processes wait for each other.

`--before TREE` trains with an older tree of partt in the same turns: `git worktree add --detach TREE COMMIT`.

usage: python benchmarks/bench_training.py [--files GLOB] [--jets N] [--threads N] [--processes N]
       [--batch N] [--rounds N] [--before TREE] [--json FILE]
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from partt.jobs.local_ranks import run_ranks

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
RECIPE = "jetclass_part_full"
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


def train_partt(files: list[Path], batch_size: int) -> Seconds:
    """Train for two epochs; validation is not measured."""
    import torch

    from partt.data.config.data_config import load_data_config
    from partt.data.files.lists import expand_files
    from partt.training.distributed import connected, world_from_environment
    from partt.training.events import EpochEnded, Event, StepDone
    from partt.training.fit import Machine, fit
    from partt.training.job import open_job
    from partt.training.recipe import load_recipe
    from partt.training.run_folder import RunFolder

    num_jets = _num_jets(files, batch_size)
    changes = [f"batch_size={batch_size}", f"jets_per_epoch={num_jets}", "epochs=2"]
    recipe = load_recipe(RECIPE, changes)
    clock = Clock()

    def report(event: Event) -> None:
        if isinstance(event, StepDone) and event.step == event.epoch_end:
            clock.stop()
        if isinstance(event, EpochEnded):
            clock.start()

    train, validation = (
        expand_files([str(path) for path in files]),
        expand_files([str(files[0].parent.with_name("val.root"))]),
    )
    job = open_job(recipe, load_data_config(recipe.data_config), train, validation, seed=1)
    world, device = world_from_environment(), torch.device("cpu")
    with tempfile.TemporaryDirectory() as out, connected(world, device):
        folder = RunFolder(Path(world.gather(out)[0]))
        fit(job, folder, Machine(device, world), report=report)
        every_rank = world.gather(clock.times)
    cpu = [sum(times) for times in zip(*(rank["cpu"] for rank in every_rank), strict=True)]
    return {"cpu": cpu, "wall": clock.times["wall"]}


def train_weaver(files: list[Path], batch_size: int) -> Seconds:
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

        def forward(self, points: Any, features: Any, momenta: Any, mask: Any) -> Any:
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
        groups, str(config), batch_size=batch_size, for_training=True, fetch_step=1, name="train"
    )
    loader = DataLoader(dataset, batch_size=batch_size, drop_last=True, num_workers=0)
    for epoch in range(2):
        loss = torch.nn.CrossEntropyLoss()
        train_classification(
            network, loss, optimizer, None, loader, torch.device("cpu"), epoch, extra_args=arguments
        )
        clock.stop()
        clock.start()
    return clock.times


def _num_jets(files: list[Path], batch_size: int) -> int:
    from partt.data.files.tables import inspect_file

    return sum(inspect_file(str(path)).num_entries for path in files) // batch_size * batch_size


TRAINERS = {"partt": train_partt, "weaver": train_weaver}


def main() -> None:
    """Alternate between the trainers, or between ways to use several cores, and print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--jets", type=int, default=1000, help="of an epoch (default: 1000)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--processes", type=int, default=0, help="compare threads and processes, without weaver"
    )
    parser.add_argument("--batch", type=int, default=128, help="jets of a step (default: 128)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of an older partt")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=TRAINERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _run_child(options)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jets = folder / "jets"
        jets.mkdir()
        num_jets = _num_jets(write_jets(options.files, options.jets, jets), options.batch)
        shutil.copy(next(jets.iterdir()), folder / "val.root")  # is not measured
        if options.processes:
            ways = _ways(jets, options)
        else:
            ways = {trainer: partial(_trained, trainer, jets, options) for trainer in TRAINERS}
            if options.before:
                ways["before"] = partial(_trained, "partt", jets, options, options.before)
        results: dict[str, list[Seconds]] = {way: [] for way in ways}
        load = [os.getloadavg()[0]]
        for _ in range(options.rounds):
            for way, measure in ways.items():
                results[way].append(measure())
            load.append(os.getloadavg()[0])
    if options.json:
        found = {
            "jets": num_jets,
            "batch": options.batch,
            "cores": os.cpu_count(),
            "load": load,
            "seconds": results,
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.processes:
        _print_speed_ups(results, num_jets, options)
    else:
        _print_table(results, num_jets, options)


def _ways(folder: Path, options: argparse.Namespace) -> dict[str, Callable[[], Seconds]]:
    """Return what to measure with several cores."""
    num = options.processes

    def changed(**changes: int) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(options), "threads": 1, "processes": 0, **changes})

    def side_by_side() -> Seconds:
        children = [_start("partt", folder, changed()) for _ in range(num)]
        runs = [_ended(child) for child in children]
        cpu, wall = (
            [statistics.mean(times) for times in zip(*(run[clock] for run in runs), strict=True)]
            for clock in ("cpu", "wall")
        )
        return {"cpu": cpu, "wall": [seconds / num for seconds in wall]}  # of the jets of one training

    return {
        "1 thread": partial(_trained, "partt", folder, changed()),
        f"{num} threads": partial(_trained, "partt", folder, changed(threads=num)),
        f"{num} processes": partial(_trained, "partt", folder, changed(processes=num)),
        f"{num} trainings side by side": side_by_side,
    }


def _run_child(options: argparse.Namespace) -> None:
    """Train, in as many processes as asked for; the first one prints the times."""

    def work() -> int:
        import torch

        logging.disable()
        warnings.simplefilter("ignore")
        torch.set_num_threads(options.threads)
        files = sorted(Path(options.files).glob("*.root"))
        print(json.dumps(TRAINERS[options.child](files, options.batch)), flush=True)
        return 0

    if options.processes:
        ended = run_ranks(options.processes, options.threads, work)
        if ended.exit_code:
            sys.exit(ended.message or ended.exit_code)
    else:
        work()


def _trained(trainer: str, folder: Path, options: argparse.Namespace, tree: Path = ROOT) -> Seconds:
    return _ended(_start(trainer, folder, options, tree))


def _start(
    trainer: str, folder: Path, options: argparse.Namespace, tree: Path = ROOT
) -> "subprocess.Popen[str]":
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    environment["PYTHONPATH"] = str(tree)
    script = str(tree / "benchmarks" / "bench_training.py")
    command = [sys.executable, script, "--child", trainer, "--files", str(folder)]
    for name in ("threads", "processes", "batch") if tree == ROOT else ("threads",):  # as 0.1 has it
        command += [f"--{name}", str(getattr(options, name))]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _ended(child: "subprocess.Popen[str]") -> Seconds:
    output, errors = child.communicate()
    if child.returncode:
        sys.exit(errors or f"a training ended with exit code {child.returncode}")
    seconds: Seconds = json.loads(output.splitlines()[-1])
    return seconds


def _print_speed_ups(results: dict[str, list[Seconds]], num_jets: int, options: argparse.Namespace) -> None:
    num = options.processes
    table = Table("second epoch", title=f"{num_jets} jets, batch {options.batch}, {os.cpu_count()} cores")
    for heading in ("jets/s", "speed-up", "by CPU time"):
        table.add_column(heading, justify="right")

    def second(name: str, clock: str) -> float:
        return statistics.median(run[clock][1] for run in results[name])

    for name in results:
        cores = 1 if name == "1 thread" else num
        by_clock = second("1 thread", "wall") / second(name, "wall")
        by_cpu = cores * second("1 thread", "cpu") / second(name, "cpu")
        table.add_row(name, f"{num_jets / second(name, 'wall'):.1f}", f"{by_clock:.2f}", f"{by_cpu:.2f}")
    Console().print(table)


def _print_table(results: dict[str, list[Seconds]], num_jets: int, options: argparse.Namespace) -> None:
    table = Table(
        "",
        title=f"{num_jets} jets, batch {options.batch}, {options.threads} "
        f"thread{'s' * (options.threads > 1)}: jets/s",
    )
    others = [name for name in results if name != "partt"]
    for heading in (*results, *(f"partt / {name}" for name in others)):
        table.add_column(heading, justify="right")
    for number, epoch in enumerate(EPOCHS):
        for clock in ("cpu", "wall"):
            rates = {
                name: num_jets / statistics.median(run[clock][number] for run in runs)
                for name, runs in results.items()
            }
            ratios = [rates["partt"] / rates[name] for name in others]
            cells = (*(f"{rate:.1f}" for rate in rates.values()), *(f"{ratio:.2f}" for ratio in ratios))
            table.add_row(f"{epoch}, {clock} time", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
