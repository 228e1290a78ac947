"""Colours and bars: what switching off heads and blocks costs."""

import numpy as np
from matplotlib.figure import Figure

from partt.explanation.ablation import AblationStudy
from partt.explanation.figures.colour_table import colour_table
from partt.pages.drawing import Drawing
from partt.pages.style import COLOURS, plain


def draw_ablation(found: AblationStudy) -> Drawing:
    """Draw the loss of accuracy without each head, and without each block."""
    blocks = list(dict.fromkeys(head.heads[0][0] for head in found.heads))
    num_heads = max(head.heads[0][1] for head in found.heads) + 1
    losses = np.full((len(blocks), num_heads), np.nan)
    for head in found.heads:
        ((block, number),) = head.heads
        losses[blocks.index(block), number] = 100 * head.losses.accuracy.loss
    figure = Figure(figsize=(12.8, 1.6 + 0.4 * (len(blocks) + 1)), layout="constrained")
    left, right = figure.subplots(1, 2)
    most = max(float(np.nanmax(np.abs(losses))), 0.1)
    image = colour_table(left, losses, blocks, [str(number + 1) for number in range(num_heads)],
                         cmap="RdBu_r", vmin=-most, vmax=most, digits=".1f")  # fmt: skip
    left.set_xticks(
        range(num_heads), [str(number + 1) for number in range(num_heads)], rotation=0, ha="center"
    )
    left.set(xlabel="head")
    left.set_title("one head switched off")
    figure.colorbar(image, ax=left, label="loss of accuracy [%]", pad=0.01)
    parts = [*found.blocks, *([found.pair_bias] if found.pair_bias else [])]
    values = [part.losses.accuracy for part in parts]
    errors = [[100 * (one.loss - one.low) for one in values], [100 * (one.high - one.loss) for one in values]]
    right.barh(range(len(parts)), [100 * one.loss for one in values], xerr=errors, color=COLOURS[0],
               error_kw={"ecolor": "0.25", "elinewidth": 1.2})  # fmt: skip
    right.set_yticks(range(len(parts)), [plain(part.name) for part in parts])
    right.tick_params(axis="y", which="both", length=0)
    right.minorticks_off()
    right.invert_yaxis()
    right.axvline(0, color="0.3", linewidth=0.8)
    right.set(xlabel="loss of accuracy [%]")
    right.set_title("a whole block, or the pair bias, switched off")
    return Drawing(
        "ablation",
        "Ablation",
        "What the accuracy loses without one head (its output set to 0), one block (skipped) or the pair "
        "bias (set to 0), without training again.",
        figure,
    )
