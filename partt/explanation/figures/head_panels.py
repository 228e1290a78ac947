"""How sparse the attention of each head is."""

import numpy as np
from matplotlib.figure import Figure

from partt.explanation.attention_statistics import EDGES, NEAR_BINARY, PARTS, HeadStatistics
from partt.pages.drawing import Drawing
from partt.pages.style import colour, line, plain

MARKERS = "osD"


def draw_heads(found: HeadStatistics) -> Drawing:
    """Draw the effective number of particles, for both terms together and each alone, and largest weights."""
    num_blocks, num_heads = found.means.shape[:2]
    places = np.arange(num_blocks * num_heads) + np.repeat(
        np.arange(num_blocks), num_heads
    )  # a gap after each
    figure = Figure(figsize=(12.8, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.7, 1])
    for number, part in enumerate(PARTS):
        values = found.means[:, :, number, 1].ravel()
        if np.isfinite(values).any():
            errors = found.errors[:, :, number, 1].ravel()
            label = {"both": "attention", "content": "q·k alone", "pair bias": "pair bias alone"}[part]
            left.errorbar(
                places, values, errors, fmt=MARKERS[number], color=colour(number), label=label, markersize=5
            )
    middles = places.reshape(num_blocks, num_heads).mean(axis=1)
    left.set_xticks(middles, [plain(name) for name in found.blocks], rotation=30 if num_blocks > 6 else 0)
    left.tick_params(axis="x", which="both", length=0)
    left.set(ylabel="effective number of particles", ylim=(0, None))
    left.set_title("one point for each head")
    left.legend(loc="best")
    for number, name in enumerate(found.blocks):
        shares = found.histograms[number].mean(axis=0)
        right.stairs(shares, EDGES, color=colour(number), linestyle=line(number), label=plain(name))
    right.set(xlabel="largest weight of a row", ylabel="share of rows", xlim=(0, 1), yscale="log")
    right.legend(loc="best", ncols=2 if num_blocks > 6 else 1)
    return Drawing(
        "heads",
        "How sparse attention is",
        "Left: the effective number of particles that a particle attends to, 1 / Σ a², mean over jets; all "
        "alike would be the number of particles. Right: the largest weight of each particle; above "
        f"{NEAR_BINARY:g} it attends to one particle only.",
        figure,
    )
