"""Jets per second of exported files in onnxruntime: partt's, and weaver-core's export of the same weights.

`part` with new weights, in float32 on one thread. Batches hold jets in random order, as a program that tags
event by event has them, padded to the longest of the batch. Measurements are interleaved, so that a busy
machine affects all equally; the clock is the process's CPU time; medians are compared.

usage: OMP_NUM_THREADS=1 python benchmarks/bench_export.py [--rounds N] [--json FILE]
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
FILES = ROOT.parent / "shared" / "reference" / "bench_jets"
NUM_JETS = 128
BATCH_SIZES = (1, 16, 64)
Work = Callable[[], None]
# The tests have weaver-core's export of a tagger.
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "exporting")]


def load_columns(count: int) -> Any:
    """Return the branches of jets of all classes, in random order."""
    import numpy as np

    from partt.data.config.data_config import load_data_config
    from partt.data.files.tables import inspect_file
    from partt.data.jagged import concatenate, take
    from partt.data.variables import Variables, read_variables

    config = load_data_config("jetclass_full")
    names = set(config.input_names)
    tables = []
    for path in sorted(FILES.glob("*.root")):
        file = inspect_file(str(path))
        tables.append(read_variables(config, names, file, 0, file.num_entries).branches)
    order = np.random.default_rng(1).permutation(sum(len(table["jet_pt"]) for table in tables))[:count]
    columns = {name: take(concatenate([table[name] for table in tables]), order) for name in tables[0]}
    return Variables(columns, config.formulas, "benchmark", np.arange(count))


def make_tagger() -> Any:
    """Return the published network with new weights."""
    import torch

    from partt.data.config.data_config import load_data_config
    from partt.data.made_up_jets import made_up_jets
    from partt.model.registry import build_network, network_config
    from partt.tagger.tagger_file import new_tagger

    torch.manual_seed(0)
    config = load_data_config("jetclass_full")
    network = build_network("part", network_config("part"), config.input_shape, {"classes": 10})
    return new_tagger(network.eval(), config, made_up_jets())


def competitors(tagger: Any, folder: Path) -> dict[str, tuple[str, Any]]:
    """Return name -> (inputs, session) of all exports; all must agree."""
    from exported_taggers import weaver_session
    from partt.exporting.export import export
    from partt.tagger.onnx_file import load_onnx_tagger

    def exported(name: str, inputs: Any, one: Any = tagger) -> tuple[str, Any]:
        path = export(one, folder / f"{name}.onnx", inputs=inputs).path
        return inputs, load_onnx_tagger(path).session

    all_pairs = make_tagger()  # every pair computed twice, instead of a triangle that is mirrored
    all_pairs.network.backbone.pair_embedding.pairs = "ordered"
    return {
        "partt, raw": exported("raw", "raw"),
        "partt, standardised": exported("standardised", "standardised"),
        "weaver-core": ("standardised", weaver_session(tagger, folder)),
        "partt, standardised, all pairs": exported("all_pairs", "standardised", all_pairs),
    }


def main() -> None:
    """Measure, print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not FILES.is_dir():
        sys.exit(f"no jets at {FILES}")
    logging.disable()
    warnings.simplefilter("ignore")
    import numpy as np

    from exported_taggers import wrapped
    from partt.tagger.onnx_file import run_session
    from partt.tagger.onnx_inputs import feeder, input_axes

    tagger, variables = make_tagger(), load_columns(NUM_JETS)
    jets = {
        inputs: feeder(
            inputs, tagger.data_config, variables, input_axes(inputs, tagger.data_config, variables.branches)
        )
        for inputs in ("raw", "standardised")
    }
    rates: dict[str, list[float]] = {}
    scores = {}
    with tempfile.TemporaryDirectory() as folder:
        sessions = competitors(tagger, Path(folder))
    for turn in range(options.rounds + 1):
        for size in BATCH_SIZES:
            batches = np.split(np.arange(NUM_JETS), range(size, NUM_JETS, size))
            for name, (inputs, session) in sessions.items():
                feeds = [jets[inputs].feed(batch) for batch in batches]
                if inputs == "standardised":
                    feeds = [wrapped(feed) for feed in feeds]  # type: ignore[no-untyped-call]
                started = time.process_time()
                outputs = [run_session(session, feed).probabilities for feed in feeds]
                rate = NUM_JETS / (time.process_time() - started)
                if turn:  # the first is a warm-up
                    rates.setdefault(f"{name}, batch {size}", []).append(rate)
                scores[name, size] = np.concatenate(outputs)
    largest = np.max([np.abs(values - scores["weaver-core", 1]).max() for values in scores.values()])
    table = Table("jets/s, one thread", title=f"scores agree to {largest:.1e}")
    for heading in ("median", "lowest", "highest", "this / weaver-core"):
        table.add_column(heading, justify="right")
    for name, values in rates.items():
        ours, theirs = (
            statistics.median(rates[key]) for key in (name, f"weaver-core, batch {name.split()[-1]}")
        )
        table.add_row(name, *(f"{x:,.1f}" for x in (ours, min(values), max(values))), f"{ours / theirs:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"largest difference": float(largest), **rates}, indent=1) + "\n")


if __name__ == "__main__":
    main()
