"""Measure time and memory of `partt explain` with the tagger in the box.

python benchmarks/bench_explain.py '/path/to/jets/*.root' --json benchmarks/explain.json
"""

import argparse
import json
import os
import platform
import resource
import tempfile
import time
from pathlib import Path

import torch

import partt

TAGGER = "jetclass-small"


def main() -> None:
    """Explain the tagger, and print or write what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = partt.explain(TAGGER, options.files, out=folder)
        page_bytes = (Path(folder) / "explanation.html").stat().st_size
    after = resource.getrusage(resource.RUSAGE_SELF)
    heads = found.attention.heads if found.attention else None
    result = {
        "tagger": TAGGER,
        "jets": sum(found.num_jets.values()),
        "wall_seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "peak_memory_mb": round(after.ru_maxrss / 1024),
        "page_mb": round(page_bytes / 1e6, 2),
        "cores": os.cpu_count(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "completeness_error_largest": float(found.gradients.completeness.max()) if found.gradients else None,
        "completeness_error_mean": float(found.gradients.completeness.mean()) if found.gradients else None,
        "gradient_jets_left_out": found.gradients.num_left_out if found.gradients else None,
        "near_binary_rows": float(heads.means[:, :, 0, 3].mean()) if heads else None,
        "attended_types": {
            name: dict(
                zip(one.categories, zip(one.values[k], one.low[k], one.high[k], strict=True), strict=True)
            )
            for one in (found.attention.attended if found.attention else ())
            if one.title == "type"
            for k, name in enumerate(found.class_names)
        },
        "importances": {
            one.change.name: [one.losses.area.loss, one.losses.area.low, one.losses.area.high]
            for one in found.importances
        },
        "heads_off": len(found.ablations.together.heads)
        if found.ablations and found.ablations.together
        else 0,
        "linear_fits": dict(found.embedding.map.fits) if found.embedding else None,
        "torch": str(torch.__version__),
        "processor": platform.processor() or platform.machine(),
    }
    text = json.dumps(result, indent=1)
    if options.json:
        options.json.write_text(text.replace("NaN", "null") + "\n")
    print(text)


if __name__ == "__main__":
    main()
