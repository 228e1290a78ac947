"""Jets per second through the Particle Transformer: partt, weaver-core, its ONNX export, the limit.

The part slim_inference compares partt's slim_s with lgatr's own, with the same weights.

The parts vertices_* have two collections, and compare with weaver-core's ParticleTransformerTagger, with the
same weights. Up to five displaced tracks of a jet stand for its secondary vertices.

In training both networks cut the long jets of a batch at a random quantile of its lengths; one step of six
cuts nothing, and takes weaver half as long again. So a turn of training is six steps, at quantiles that are
evenly spaced over the published range, the same for both. Memory is that of a step that cuts nothing.

weaver-core runs in separate processes, with the allocator as its users have it; measurements are interleaved,
so that a busy machine affects all equally; medians are compared. With one thread the clock is the process's
CPU time, which other jobs on the machine do not stretch; with more it is the wall clock. Memory is the peak
of a training step in a separate process, less what it had before.

`--before TREE` measures an older tree of partt in the same turns: `git worktree add --detach TREE COMMIT`.
What the JSON file has of other parts and threads is kept.

usage: python benchmarks/bench_model.py [--parts PART ...] [--threads N ...] [--rounds N] [--before TREE]
       [--json FILE]
"""

import argparse
import glob
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FILES = str(ROOT.parent / "shared" / "reference" / "bench_jets" / "*.root")
CONFIG = "jetclass_full"
NUM_JETS = 400
TRAINING_BATCH, MEMORY_BATCH = 128, 512
QUANTILES = (0.91, 0.93, 0.95, 0.97, 0.99, 1.01)  # at which training cuts: drawn from 0.9 to 1.02
SLOTS = (128, 10)  # of weaver's padded jets, for particles and vertices
MAX_VERTICES = 5
LIMIT = "limit: float32 matrix product"
Work = Callable[[], None]
Competitors = dict[str, tuple[int, Work]]


def load_jets(count: int, *, vertices: bool = False) -> Any:
    """Return a JetBatch of jets of all classes, in random order, with a second collection if asked for."""
    import numpy as np

    from partt.data.config.data_config import load_data_config
    from partt.data.files.tables import inspect_file
    from partt.data.jet_batch import concatenate
    from partt.data.packing import pack
    from partt.data.variables import read_variables

    config = load_data_config(CONFIG)
    batches = []
    for path in sorted(glob.glob(FILES)):  # noqa: PTH207
        file = inspect_file(path)
        names = set(config.input_names)
        batches.append(pack(config, read_variables(config, names, file, 0, file.num_entries)))
    jets = concatenate(batches)
    jets = jets.take(np.random.default_rng(1).permutation(len(jets))[:count])
    return replace(jets, inputs=add_vertices(jets.inputs)) if vertices else jets


def add_vertices(inputs: Any) -> Any:
    """Return inputs with a second collection: the first displaced tracks of each jet."""
    import operator

    import torch

    from partt.jet_inputs import JetInputs
    from partt.model.grouping import jet_of_row

    jets = jet_of_row(inputs.main.offsets)
    displaced = (inputs.main.features[:, 11].abs() > 0.3).long()  # tanh(d0)
    before = torch.cat((displaced.new_zeros(1), displaced.cumsum(0)))
    rank = before[1:] - before[inputs.main.offsets[jets]]
    kept = ((displaced > 0) & (rank <= MAX_VERTICES)).nonzero()[:, 0]
    counts = torch.bincount(jets[kept], minlength=len(inputs))
    offsets = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    return JetInputs({"pf": inputs.main, "sv": inputs.main.with_rows(operator.itemgetter(kept), offsets)})


def build_tagger(name: str) -> Any:
    """Return partt's network of two collections or weaver's, with the same new weights."""
    import torch
    from weaver.nn.model.ParticleTransformer import ParticleTransformerTagger

    from partt.jet_inputs import CollectionShape, InputShape
    from partt.model.cpu.allocator import keep_freed_memory
    from partt.model.registry import build_network
    from partt.model.weaver_weights import import_particle_transformer

    torch.manual_seed(0)
    tagger = ParticleTransformerTagger(17, 17, 10, use_pre_activation_pair=False)
    for trimmer in (tagger.pf_trimmer, tagger.sv_trimmer):
        trimmer._counter.fill_(trimmer.warmup_steps)  # noqa: SLF001 (see `build`)
    if name == "weaver":
        return tagger
    keep_freed_memory()
    config, state = import_particle_transformer(tagger.state_dict(), "0.5", settings={"trim": True})
    shape = InputShape(dict.fromkeys(("pf", "sv"), CollectionShape(17, has_momenta=True)))
    network = build_network("part", config, shape, {"classes": 10})
    network.load_state_dict(state)
    return network


def build(name: str, *, vertices: bool = False) -> Any:
    """Return partt's or weaver's network as published, with new weights."""
    import torch

    if vertices:
        return build_tagger(name)
    torch.manual_seed(0)
    if name == "partt":
        from partt.data.config.data_config import load_data_config
        from partt.model.cpu.allocator import keep_freed_memory
        from partt.model.registry import build_network, network_config

        keep_freed_memory()  # as training and inference do
        config, shape = network_config("part", {"trim": True}), load_data_config(CONFIG).input_shape
        return build_network("part", config, shape, {"classes": 10})
    from weaver.nn.model.ParticleTransformer import ParticleTransformer

    options = {"use_pre_activation_pair": False, "fc_params": [], "num_classes": 10}
    network = ParticleTransformer(17, for_inference=name == "onnx", **options)
    # weaver cuts a batch to its longest jet (in training to a random quantile), but not the first five.
    network.trimmer._counter.fill_(network.trimmer.warmup_steps)  # noqa: SLF001
    return network


def pad(jets: Any, slots: Sequence[int] = (1, 1)) -> tuple[Any, ...]:
    """Return jets as weaver wants them: x (B, F, P), v (B, 4, P), mask (B, 1, P) of each collection."""
    from partt.jet_inputs import JetInputs

    tensors: list[Any] = []
    for (name, collection), length in zip(jets.inputs.collections.items(), slots, strict=False):
        padded = JetInputs({name: collection}).padded(min_slots=length).collections[name]
        tensors += [
            part.transpose(1, 2).contiguous()
            for part in (padded.features, padded.momenta)
            if part is not None
        ]
        tensors.append(padded.mask[:, None])
    return tuple(tensors)


def gflop(jets: Any) -> float:
    """Return the arithmetic of one jet on average, by performance.md's count."""
    lengths = jets.inputs.lengths.double()
    macs = 1.77e6 * lengths + 2048 * lengths**2 + 8960 * lengths * (lengths + 1) / 2
    return 2e-9 * float(macs.mean())


def inference(threads: int) -> tuple[Competitors, float]:
    """Return partt and onnxruntime, name -> (jets, work), and the GFLOP of one jet."""
    import numpy as np
    import torch

    jets = load_jets(NUM_JETS)
    network = build("partt").eval()

    def partt() -> None:
        with torch.inference_mode():
            network(jets.inputs)

    session = _onnx_session(pad(jets.slice(0, 4)), threads)

    def onnx_batches(size: int, *, by_length: bool) -> Work:
        ordered = jets.take(np.argsort(jets.inputs.lengths.numpy(), kind="stable")) if by_length else jets
        batches = [pad(ordered.slice(i, min(i + size, NUM_JETS))) for i in range(0, NUM_JETS, size)]
        feeds = [{"x": x.numpy(), "v": v.numpy(), "m": m.float().numpy()} for x, v, m in batches]

        def work() -> None:
            for feed in feeds:
                session.run(None, feed)

        return work

    competitors = {"partt, batch 400": (NUM_JETS, partt)}
    competitors["onnxruntime, batch 1"] = (NUM_JETS, onnx_batches(1, by_length=False))
    for size in (4, 8, 16, 32):
        competitors[f"onnxruntime, sorted, batch {size}"] = (NUM_JETS, onnx_batches(size, by_length=True))
    return competitors, gflop(jets)


def vertices_inference(threads: int) -> tuple[Competitors, float]:
    """Return partt with two collections."""
    import torch

    del threads
    jets, network = load_jets(NUM_JETS, vertices=True), build("partt", vertices=True).eval()

    def partt() -> None:
        with torch.inference_mode():
            network(jets.inputs)

    return {"partt, batch 400": (NUM_JETS, partt)}, gflop(jets)


def build_slim(jets: Any) -> Any:
    """Return slim_s with new weights."""
    import torch

    from partt.model.registry import build_network, network_config

    torch.manual_seed(0)
    return build_network("slim_s", network_config("slim_s"), jets.inputs.shape, {"classes": 10}).eval()


def slim_inference(threads: int) -> tuple[Competitors, float]:
    """Return partt's slim_s."""
    import torch

    from partt.model.cpu.allocator import keep_freed_memory

    del threads
    keep_freed_memory()
    jets = load_jets(NUM_JETS)
    network = build_slim(jets)

    def partt() -> None:
        with torch.inference_mode():
            network(jets.inputs)

    return {"partt, batch 400": (NUM_JETS, partt)}, 0.0


def lgatr_inference(threads: int) -> tuple[Competitors, float]:
    """Return lgatr's slim_s on padded jets at several batch sizes, as they come and sorted by length."""
    import numpy as np
    import torch

    sys.path.append(str(ROOT / "tests"))
    from lgatr_oracle import lgatr_inputs, lgatr_logits, lgatr_twin

    del threads
    jets = load_jets(NUM_JETS)
    network = build_slim(jets)
    twin = lgatr_twin(network).eval()

    def batches(size: int, *, by_length: bool) -> Work:
        ordered = jets.take(np.argsort(jets.inputs.lengths.numpy(), kind="stable")) if by_length else jets
        slices = [ordered.slice(i, min(i + size, NUM_JETS)) for i in range(0, NUM_JETS, size)]
        padded = [lgatr_inputs(network, batch.inputs) for batch in slices]

        def work() -> None:
            with torch.inference_mode():
                for batch in padded:
                    lgatr_logits(twin, *batch)

        return work

    competitors = {
        f"lgatr, batch {size}": (NUM_JETS, batches(size, by_length=False)) for size in (400, 50, 16, 8)
    }
    for size in (50, 16, 8):
        competitors[f"lgatr, sorted, batch {size}"] = (NUM_JETS, batches(size, by_length=True))
    return competitors, 0.0


def weaver_inference(threads: int, *, vertices: bool = False) -> tuple[Competitors, float]:
    """Return weaver-core at several batch sizes."""
    import torch

    del threads
    jets, network = load_jets(NUM_JETS, vertices=vertices), build("weaver", vertices=vertices).eval()

    def batches(size: int) -> Work:
        padded = [pad(jets.slice(i, min(i + size, NUM_JETS)), SLOTS) for i in range(0, NUM_JETS, size)]

        def work() -> None:
            with torch.inference_mode():
                for batch in padded:
                    network(*batch)

        return work

    return {f"weaver, batch {size}": (NUM_JETS, batches(size)) for size in (400, 50, 20, 8)}, 0.0


def _onnx_session(example: tuple[Any, ...], threads: int) -> Any:
    import onnxruntime
    import torch

    path = Path(tempfile.mkdtemp()) / "weaver.onnx"
    axes = {name: {0: "jets", 2: "particles"} for name in "xvm"}
    network, (x, v, mask) = build("onnx").eval(), example
    torch.onnx.export(
        network,
        (x, v, mask.float()),
        str(path),
        input_names=list("xvm"),
        output_names=["scores"],
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def cut_at(network: Any, quantile: float) -> None:
    """Let partt and a network of weaver cut the batches of training at a quantile that is not random."""
    from weaver.nn.model.ParticleTransformer import SequenceTrimmer

    from partt.model import trimming

    trimming.QUANTILES = (quantile, quantile)
    for module in network.modules():
        if isinstance(module, SequenceTrimmer):
            module.target = (quantile, quantile)


def training_steps(name: str, jets: Any, quantiles: Sequence[float] = QUANTILES) -> Work:
    """Return steps of forward and backward pass on a batch, cut at quantiles; weaver pads to 128 before."""
    import torch
    from torch.nn import functional

    network = build(name, vertices="sv" in jets.inputs.collections).train()
    labels = torch.arange(len(jets)) % 10
    padded = pad(jets, SLOTS)

    def steps() -> None:
        for quantile in quantiles:
            cut_at(network, quantile)
            network.zero_grad()
            logits = network(jets.inputs)["classes"] if name == "partt" else network(*padded)
            functional.cross_entropy(logits, labels).backward()  # type: ignore[no-untyped-call]

    return steps


def training(threads: int, *, vertices: bool = False) -> tuple[Competitors, float]:
    """Return partt's training steps, and the GFLOP of one jet: three times that of inference."""
    del threads
    jets = load_jets(TRAINING_BATCH, vertices=vertices)
    count = TRAINING_BATCH * len(QUANTILES)
    return {"partt, batch 128": (count, training_steps("partt", jets))}, 3 * gflop(jets)


def weaver_training(threads: int, *, vertices: bool = False) -> tuple[Competitors, float]:
    """Return weaver-core's training steps."""
    del threads
    jets = load_jets(TRAINING_BATCH, vertices=vertices)
    count = TRAINING_BATCH * len(QUANTILES)
    return {"weaver, batch 128": (count, training_steps("weaver", jets))}, 0.0


def scaling(threads: int) -> tuple[Competitors, float]:
    """Return partt's inference at fixed multiplicities and at several batch sizes."""
    import operator

    import torch

    from partt.jet_inputs import JetInputs

    del threads
    network, jets = build("partt").eval(), load_jets(1024)
    competitors: Competitors = {}

    def run(inputs: JetInputs) -> Work:
        def work() -> None:
            with torch.inference_mode():
                network(inputs)

        return work

    for length in (8, 16, 32, 64, 128):
        count = 2048 // length
        rows, offsets = operator.itemgetter(slice(count * length)), torch.arange(count + 1) * length
        particles = jets.inputs.main.with_rows(rows, offsets)
        competitors[f"{length} particles a jet"] = (count, run(JetInputs({"pf": particles})))
    for size in (1, 4, 16, 64, 256, 1024):
        competitors[f"batch {size}"] = (size, run(jets.slice(0, size).inputs))
    return competitors, 0.0


def take_turns(competitors: Competitors, flop: float, threads: int) -> dict[str, list[float]]:
    """Return jets per second of every competitor, twice, after two turns to warm up."""
    import torch

    clock = time.process_time if threads == 1 else time.perf_counter
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    if flop:
        rates[LIMIT] = []
    matrix = torch.randn(2048, 2048)
    for turn in range(-1, 3):
        for name, (count, work) in competitors.items():
            started = clock()
            work()
            if turn > 0:
                rates[name].append(count / (clock() - started))
        if turn > 0 and flop:
            started = clock()
            torch.mm(matrix, matrix)
            rates[LIMIT].append(2 * 2.048**3 / (clock() - started) / flop)
    return rates


def memory(name: str) -> dict[str, list[float]]:
    """Return the peak memory of a training step in gigabytes, less what the process had before."""
    step = training_steps(name, load_jets(MEMORY_BATCH), quantiles=QUANTILES[-1:])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    return {name: [(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6]}


# part -> what its processes measure
PARTS: dict[str, tuple[Any, ...]] = {
    "inference": (inference, weaver_inference),
    "training": (training, weaver_training),
    "vertices_inference": (vertices_inference, partial(weaver_inference, vertices=True)),
    "vertices_training": (partial(training, vertices=True), partial(weaver_training, vertices=True)),
    "slim_inference": (slim_inference, lgatr_inference),
    "scaling": (scaling,),
    "memory": ("partt", "weaver"),
}


def run_child(part: str, number: int, threads: int) -> None:
    """Measure in this process and print the result as JSON."""
    import torch

    logging.disable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    measured = PARTS[part][number]
    if isinstance(measured, str):
        result: Any = memory(measured)
    else:
        competitors, flop = measured(threads)
        result = take_turns(competitors, flop, threads)
    print(json.dumps(result))


def main() -> None:
    """Interleave the measurements, print the tables."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3, help="of two measurements each")
    parser.add_argument("--before", type=Path, metavar="TREE", help="a checkout of an older partt")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        run_child(options.parts[0], options.child, options.threads[0])
        return
    if not glob.glob(FILES):  # noqa: PTH207
        sys.exit(f"no files match {FILES}")
    results: dict[str, Any] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    for part in options.parts:
        for threads in [1] if part == "memory" else options.threads:
            unit = f"training step, batch {MEMORY_BATCH}, GB" if part == "memory" else "jets/s"
            title = f"{part}, {threads} thread{'s' * (threads > 1)}, {unit}"
            rates: dict[str, list[float]] = {}
            for _ in range(1 if part == "memory" else options.rounds):
                for number in range(len(PARTS[part])):
                    for name, values in _child(part, number, threads).items():
                        rates.setdefault(name, []).extend(values)
                for name, values in (
                    _child(part, 0, threads, options.before).items() if options.before else ()
                ):
                    if name.startswith("partt"):
                        rates.setdefault(f"before: {name}", []).extend(values)
            results[title] = rates
            _print_table(title, rates)
            if options.json:
                options.json.write_text(json.dumps(results, indent=2) + "\n")


def _child(part: str, number: int, threads: int, tree: Path = ROOT) -> dict[str, list[float]]:
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    environment["PYTHONPATH"] = str(tree)
    script = str(tree / "benchmarks" / "bench_model.py")
    command = [sys.executable, script, "--parts", part, "--child", str(number), "--threads", str(threads)]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    result: dict[str, list[float]] = json.loads(output.splitlines()[-1])
    return result


def _print_table(title: str, results: dict[str, list[float]]) -> None:
    table = Table("", title=title)
    for heading in ("median", "lowest", "highest", "partt / this"):
        table.add_column(heading, justify="right")
    medians = {name: statistics.median(values) for name, values in results.items()}
    ours = next((value for name, value in medians.items() if name.startswith("partt")), None)
    for name, values in results.items():
        ratio = f"{ours / medians[name]:.2f}" if ours else ""
        numbers = (medians[name], min(values), max(values))
        table.add_row(name, *(f"{number:,.1f}" for number in numbers), ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
