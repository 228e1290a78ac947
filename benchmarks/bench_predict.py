"""Prediction, file to file: against the network's own rate, against `weaver --predict`, and its memory.

    rate    `partt.predict` of a file against the network alone on the same jets, packed in memory; in turns,
            CPU time and wall clock of one process with one thread
    weaver  `partt predict` against `weaver --predict`, both with the published Particle Transformer, the same
            weights, file and threads; two sizes of file each, so that what both need to start drops out
    memory  peak memory of processes that predict files of more and more jets with part_xs

usage: python benchmarks/bench_predict.py [--parts PART ...] [--rounds N] [--jets N ...] [--json FILE]
"""

import argparse
import glob
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
WEAVER_JETS = (200, 1000)
WEAVER_BATCHES = (32, 400)
WEAVER_NETWORK = """
from weaver.nn.model.ParticleTransformer import ParticleTransformer
import torch


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mod = ParticleTransformer(17, num_classes=10, use_pre_activation_pair=False, fc_params=[])

    def forward(self, points, features, lorentz_vectors, mask):
        return self.mod(features, v=lorentz_vectors, mask=mask)


def get_model(data_config, **kwargs):
    info = {
        "input_names": list(data_config.input_names),
        "input_shapes": {k: ((1,) + s[1:]) for k, s in data_config.input_shapes.items()},
        "output_names": ["softmax"],
        "dynamic_axes": {},
    }
    return Network(), info


def get_loss(data_config, **kwargs):
    return torch.nn.CrossEntropyLoss()
"""


def write_file(path: Path, num_jets: int, files: str) -> None:
    """Write jets of all classes, mixed, as often as it takes to reach a number."""
    import numpy as np

    from partt.data.config.data_config import load_data_config
    from partt.data.files.tables import read_columns, write_table
    from partt.data.jagged import concatenate, take
    from partt.data.variables import file_branches, names_for

    config = load_data_config("jetclass_full")
    names = names_for(config, "predict") | set(config.label_variables)
    branches = sorted(file_branches(config, names))
    parts = [read_columns(name, branches) for name in sorted(glob.glob(files))]  # noqa: PTH207
    jets = {name: concatenate([part[name] for part in parts]) for name in branches}
    order = np.random.default_rng(1).permutation(len(jets["jet_pt"]))

    def tables() -> Iterator[dict[str, Any]]:
        for start in range(0, num_jets, len(order)):
            some = order[: min(len(order), num_jets - start)]
            yield {name: take(column, some) for name, column in jets.items()}

    write_table(path, tables())


def write_tagger(path: Path, name: str) -> Any:
    """Write a tagger with new weights."""
    import torch

    from partt.data.config.data_config import load_data_config
    from partt.data.made_up_jets import made_up_jets
    from partt.model.registry import build_network, network_config
    from partt.tagger.tagger_file import new_tagger, read_tagger, save_tagger

    torch.manual_seed(0)
    config = load_data_config("jetclass_full")
    network = build_network(name, network_config(name), config.input_shape, {"classes": 10})
    save_tagger(path, new_tagger(network, config, made_up_jets()))
    return read_tagger(path)


# --- against the network alone ------------------------------------------------------------------------


def measure_rate(options: argparse.Namespace) -> dict[str, Any]:
    """Compare file to file with packed jets in memory -> logits."""
    import torch

    import partt
    from partt.data.files.tables import inspect_file
    from partt.data.packing import pack
    from partt.data.variables import names_for, read_variables
    from partt.model.cpu.allocator import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()  # for the network alone too
    result = {}
    for name, num_jets in (("part", 1000), ("part_xs", 5000)):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            tagger = write_tagger(folder / "tagger.safetensors", name)
            write_file(folder / "jets.root", num_jets, options.files)
            info = inspect_file(str(folder / "jets.root"))
            names = names_for(tagger.data_config, "predict")
            jets = pack(tagger.data_config, read_variables(tagger.data_config, names, info, 0, num_jets))

            def network(tagger: Any = tagger, jets: Any = jets) -> None:
                with torch.inference_mode():
                    tagger.network(jets.inputs)["classes"].softmax(dim=1)

            def file_to_file(tagger: Any = tagger, folder: Path = folder) -> None:
                shutil.rmtree(folder / "out", ignore_errors=True)
                partt.predict(tagger, folder / "jets.root", folder / "out", num_threads=1)

            works = {"network": network, "file to file": file_to_file}
            result[name] = _in_turns(works, num_jets, options.rounds)
    return result


def _in_turns(works: Mapping[str, Callable[[], None]], num_jets: int, rounds: int) -> dict[str, Any]:
    rates: dict[str, dict[str, list[float]]] = {name: {"cpu": [], "wall": []} for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            if number > 0:  # the first round warms up
                rates[name]["cpu"].append(num_jets / (time.process_time() - cpu))
                rates[name]["wall"].append(num_jets / (time.perf_counter() - wall))
    return {
        name: {clock: statistics.median(values) for clock, values in clocks.items()}
        for name, clocks in rates.items()
    }


# --- against weaver -----------------------------------------------------------------------------------


def measure_weaver(options: argparse.Namespace) -> dict[str, Any]:
    """Run both commands on a short and on a long file; the difference is what the jets cost."""
    import torch

    from partt.config import shipped_file
    from partt.model.weaver_weights import export_particle_transformer

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        network = write_tagger(folder / "tagger.safetensors", "part").network
        state = export_particle_transformer(network.state_dict(), network.config, "0.5")
        torch.save({f"mod.{key}": tensor for key, tensor in state.items()}, folder / "weaver.pt")
        (folder / "network.py").write_text(WEAVER_NETWORK)
        shutil.copy(shipped_file("data_configs", "jetclass_full"), folder / "config.yaml")
        for num_jets in WEAVER_JETS:
            write_file(folder / f"jets_{num_jets}.root", num_jets, options.files)
        threads = options.threads
        commands: dict[str, Callable[[int], list[str]]] = {
            "partt": lambda n: _partt_command(folder, n, threads)
        }
        for batch in WEAVER_BATCHES:
            commands[f"weaver, batch {batch}"] = partial(_weaver_command, folder, batch)
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                short, long = (_time(command(num_jets), folder, threads) for num_jets in WEAVER_JETS)
                seconds[name].append((long[0] - short[0], long[1] - short[1]))
        _compare_scores(folder)
        more = WEAVER_JETS[1] - WEAVER_JETS[0]
        return {
            name: {
                "wall": more / statistics.median(wall for wall, _ in values),
                "cpu": more / statistics.median(cpu for _, cpu in values),
            }
            for name, values in seconds.items()
        }


def _partt_command(folder: Path, num_jets: int, threads: int) -> list[str]:
    out = folder / f"partt_{num_jets}.root"
    out.unlink(missing_ok=True)
    words = ["--tagger", str(folder / "tagger.safetensors"), "--out", str(out), "--threads", str(threads)]
    return [sys.executable, "-m", "partt", "predict", str(folder / f"jets_{num_jets}.root"), *words]


def _weaver_command(folder: Path, batch: int, num_jets: int) -> list[str]:
    program = "from weaver.train import main; main()"
    return [
        *[sys.executable, "-c", program, "--predict", "--gpus", "", "--num-workers", "1"],
        *["--data-test", str(folder / f"jets_{num_jets}.root"), "--data-config", str(folder / "config.yaml")],
        *["--network-config", str(folder / "network.py"), "--model-prefix", str(folder / "weaver.pt")],
        *["--batch-size", str(batch), "--predict-output", str(folder / f"weaver_{num_jets}.root")],
    ]


def _time(command: list[str], folder: Path, threads: int) -> tuple[float, float]:
    """Return wall and CPU seconds of a command, its children included."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _compare_scores(folder: Path) -> None:
    """See that both computed the same."""
    import numpy as np

    from partt.data.files.tables import read_columns

    num_jets = WEAVER_JETS[0]
    ours = read_columns(str(folder / f"partt_{num_jets}.root"), ["score_QCD"])["score_QCD"]
    theirs = read_columns(str(folder / f"weaver_{num_jets}.root"), ["score_label_QCD"])["score_label_QCD"]
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=1e-4)


# --- memory -------------------------------------------------------------------------------------------


def measure_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Predict files of some sizes, each in a separate process."""
    results = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        write_tagger(folder / "tagger.safetensors", "part_xs")
        for num_jets in options.jets:
            write_file(folder / "jets.root", num_jets, options.files)
            command = [sys.executable, __file__, "--child", str(folder), "--threads", str(options.threads)]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            results[num_jets] = json.loads(output.splitlines()[-1])
            print(num_jets, results[num_jets], flush=True)
    return results


def predict_and_print(folder: Path, num_threads: int) -> None:
    """Predict, and print rate and peak memory of this process."""
    import partt

    shutil.rmtree(folder / "out", ignore_errors=True)
    tagger = partt.load_tagger(folder / "tagger.safetensors")
    result = partt.predict(tagger, folder / "jets.root", folder / "out", num_threads=num_threads)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    numbers = {
        "jets/s": result.jets_per_second,
        "jets/s of CPU time": result.balance.entries / (usage.ru_utime + usage.ru_stime),
        "peak MB": usage.ru_maxrss / 1024,
        "scored": result.balance.scored,
    }
    print(json.dumps(numbers))


PARTS = {"rate": measure_rate, "weaver": measure_weaver, "memory": measure_memory}


def main() -> None:
    """Measure, and print tables."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["rate", "weaver", "memory"])
    parser.add_argument("--files", default=FILES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jets", type=int, nargs="+", default=[50_000, 200_000], help="of the memory files")
    parser.add_argument("--threads", type=int, default=2, help="of the network, but in rate")
    parser.add_argument("--folder", help="for large temporary files")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        predict_and_print(options.child, options.threads)
        return
    if not glob.glob(options.files):  # noqa: PTH207
        sys.exit(f"no files match {options.files}: give some with --files")
    results = {part: PARTS[part](options) for part in options.parts}
    if options.json and options.json.exists():  # other parts are kept
        results = json.loads(options.json.read_text()) | results
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    for part, rows in results.items():
        _print_table(part, rows)


def _print_table(part: str, rows: dict[str, Any]) -> None:
    if part == "rate":
        rows = {f"{name}, {what}": numbers for name, both in rows.items() for what, numbers in both.items()}
    columns = list(next(iter(rows.values())))
    table = Table("", *columns, title=part)
    for name, numbers in rows.items():
        table.add_row(str(name), *(f"{numbers[column]:,.0f}" for column in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
