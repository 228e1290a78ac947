"""Training curves as a figure."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partt.atomic_files import atomic_path

JETS = "validation_num_jets"


def draw_curves(epochs: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw losses and metrics against the epoch, from lines of metrics.jsonl, to a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow to import, and needed once
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    figure = Figure(figsize=(10, 4), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = [line["epoch"] + 1 for line in epochs]
    names = list(dict.fromkeys(name for line in epochs for name in line))
    curves = [name for name in names if name.startswith(("train_", "validation_")) and name != JETS]
    losses = [name for name in curves if name.endswith("loss")]
    others = [name for name in curves if name not in losses]
    for axes, title, shown in ((left, "loss", losses), (right, "metrics", others)):
        for name in shown:
            values = [line.get(name) for line in epochs]
            if any(value is not None for value in values):
                points = [float("nan") if value is None else value for value in values]
                axes.plot(numbers, points, marker="o", markersize=3, label=name.replace("_", " "))
        best = [line["epoch"] + 1 for line in epochs if line["is_best"]]
        if best:
            axes.axvline(best[-1], color="grey", linestyle=":", label="best epoch")
        axes.set_xlabel("epoch")
        axes.set_title(title)
        axes.legend()
    image = io.BytesIO()  # not to the file: on a full disk, matplotlib would end the process
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(image)  # drawn once; `savefig` draws twice, first for the layout
    with atomic_path(path) as temporary:
        temporary.write_bytes(image.getvalue())
