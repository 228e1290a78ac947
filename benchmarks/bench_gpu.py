"""The Particle Transformer on a GPU: partt beside weaver-core, jets per second and memory.

Both have the published network with new weights, the same jets, and the same optimizer. A training step is a
copy of a batch (weaver's from page-locked memory, where its loader puts it; partt's step puts it there
itself), forward and backward pass, and a step of AdamW; weaver pads to 128 and trims as published. Inference
is the copy and a forward pass. Rounds alternate between the two; medians are compared. Memory is the peak of
a step, less what was there before.

Waits are how often a step of partt asked the GPU for a value, as torch.cuda.set_sync_debug_mode finds them:
it should be 0.

usage: python benchmarks/bench_gpu.py [--device cuda:N] [--batch-sizes N ...] [--precisions float32 bfloat16]
                                      [--rounds N] [--files FILE ...] [--json FILE]
"""

import argparse
import gc
import json
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_model import CONFIG, SLOTS, build, pad
from torch.nn import functional

import partt
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import inspect_file
from partt.data.jet_batch import JetBatch, concatenate
from partt.data.packing import pack
from partt.data.variables import read_variables

NUM_BATCHES = 4  # different ones, in turn
WARM_UP = 3  # steps before the clock starts
SECONDS = 2.0  # of a measurement, at least
WAITED = "called a synchronizing CUDA operation"  # torch's warning; it also warns of this way to find them
Step = Callable[[], None]


def read_jets(files: list[str]) -> JetBatch:
    """Return all jets of files with the branches of JetClass."""
    config = load_data_config(CONFIG)
    parts = []
    for path in files:
        file = inspect_file(path)
        parts.append(pack(config, read_variables(config, set(config.input_names), file, 0, file.num_entries)))
    return concatenate(parts)


def batches_of(jets: JetBatch, size: int) -> list[JetBatch]:
    """Return batches of jets drawn at random; a step sends them to its device as training does."""
    random = np.random.default_rng(1)
    return [jets.take(random.integers(len(jets), size=size)) for _ in range(NUM_BATCHES)]


def make_step(name: str, kind: str, batches: list[JetBatch], device: torch.device, precision: str) -> Step:
    """Return a training step or a pass of inference, of partt or weaver; batches take turns."""
    network = build(name).to(device).train(kind == "training")
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    labels = (torch.arange(len(batches[0])) % 10).to(device)
    inputs: Iterator[Any] = cycle(batches)
    if name == "weaver":
        padded = [pad(batch, SLOTS) for batch in batches]
        on_gpu = device.type == "cuda"
        inputs = cycle([[each.pin_memory() if on_gpu else each for each in batch] for batch in padded])

    def logits() -> Any:
        batch = next(inputs)
        mixed = nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16)
        with mixed:
            if name == "partt":
                outputs = network(batch.inputs.to(device))["classes"]
            else:
                outputs = network(*(each.to(device, non_blocking=True) for each in batch))
        return outputs

    def train() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(logits().float(), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @torch.inference_mode()
    def infer() -> None:
        logits()

    return train if kind == "training" else infer


def jets_per_second(step: Step, batch_size: int, device: torch.device, seconds: float) -> float:
    """Return the speed of steps that follow one another for about so many seconds."""
    a_few = _seconds_of(step, NUM_BATCHES, device)
    num_steps = max(NUM_BATCHES, round(NUM_BATCHES * seconds / a_few))
    return num_steps * batch_size / _seconds_of(step, num_steps, device)


def _seconds_of(step: Step, num_steps: int, device: torch.device) -> float:
    _finish(device)
    started = time.perf_counter()
    for _ in range(num_steps):
        step()
    _finish(device)
    return time.perf_counter() - started


def peak_memory(step: Step, device: torch.device) -> float | None:
    """Return the peak of a step in gigabytes, less what was there before; None on a CPU."""
    if device.type != "cuda":
        return None
    _finish(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    _finish(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 1e9


def num_waits(step: Step, device: torch.device) -> int | None:
    """Return how often a step waits for the GPU; None on a CPU."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        step()
        torch.cuda.set_sync_debug_mode("default")
    return sum(WAITED in str(warning.message) for warning in caught)


def compare(
    kind: str, precision: str, batches: list[JetBatch], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the numbers of both; those of one whose batch does not fit into the memory are missing."""
    size, device = len(batches[0]), options.device
    steps: dict[str, Step] = {}
    result: dict[str, Any] = {"kind": kind, "precision": precision, "batch_size": size}
    for name in ("partt", "weaver"):
        try:
            steps[name] = make_step(name, kind, batches, device, precision)
            for _ in range(WARM_UP if device.type == "cuda" else 1):
                steps[name]()
            result[f"{name}_gigabytes"] = peak_memory(steps[name], device)
        except torch.OutOfMemoryError:
            steps.pop(name, None)
            gc.collect()
            torch.cuda.empty_cache()
    if "partt" in steps:
        result["partt_waits"] = num_waits(steps["partt"], device)
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            rates[name].append(jets_per_second(step, size, device, options.seconds))
    result |= {f"{name}_jets_per_second": values for name, values in rates.items()}
    return result


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    speed = "partt, jets/s | weaver, jets/s | partt is faster by"
    lines = [f"| | precision | batch | {speed} | partt, GB | weaver, GB | waits |", "|---" * 9 + "|"]
    for result in results:
        ours, theirs = (_median(result.get(f"{name}_jets_per_second")) for name in ("partt", "weaver"))
        cells = [
            result["kind"],
            result["precision"],
            f"{result['batch_size']:,}",
            _text(ours, ",.0f", "out of memory"),
            _text(theirs, ",.0f", "out of memory"),
            _text(None if ours is None or theirs is None else ours / theirs, ".2f"),
            _text(result.get("partt_gigabytes"), ".2f"),
            _text(result.get("weaver_gigabytes"), ".2f"),
            _text(result.get("partt_waits"), "d"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def machine(device: torch.device) -> dict[str, str]:
    """Return what the numbers depend on."""
    from importlib.metadata import version

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    versions = {"torch": torch.__version__, "partt": partt.__version__, "weaver-core": version("weaver-core")}
    return {"device": name, "cuda": torch.version.cuda or "none", **versions}


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None


def _text(value: float | None, form: str, missing: str = "-") -> str:
    return missing if value is None else f"{value:{form}}"


def main() -> None:
    """Measure, print the table, write the numbers."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[128, 512, 1024, 2048])
    parser.add_argument(
        "--kinds", nargs="+", choices=("training", "inference"), default=["training", "inference"]
    )
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a measurement, at least")
    parser.add_argument("--files", nargs="+", default=[str(path) for path in partt.sample_files()])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = options.device
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --device cpu tries the script itself")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    both = ["float32", "bfloat16"] if device.type == "cuda" else ["float32"]
    logging.disable()  # weaver's
    jets, results = read_jets(options.files), []
    for kind in ("training", "inference"):
        for precision in options.precisions or both:
            for size in options.batch_sizes:
                batches = batches_of(jets, size)
                results.append(compare(kind, precision, batches, options))
                print(table(results[-1:]).splitlines()[-1], flush=True)
    where = machine(device)
    print(f"\n{', '.join(f'{key} {value}' for key, value in where.items())}\n\n{table(results)}")
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
