"""Tables of numbers with coloured cells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from partt.pages.style import plain
from partt.scores.passing import Floats


def colour_table(
    axes: Axes,
    values: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    digits: str = ".2f",
    **options: Any,
) -> Any:
    """Draw values (rows, columns) as colours with numbers; NaN cells stay empty. Returns the image."""
    image = axes.imshow(np.ma.masked_invalid(values), aspect="auto", **options)
    norm, colours = image.norm, image.get_cmap()
    for row, column in np.argwhere(np.isfinite(values)):
        red, green, blue, _ = colours(norm(values[row, column]))
        is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        axes.text(column, row, f"{values[row, column]:{digits}}", ha="center", va="center", fontsize=7.5,
                  color="white" if is_dark else "black")  # fmt: skip
    axes.set_xticks(range(len(columns)), [plain(name) for name in columns], rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [plain(name) for name in rows])
    axes.tick_params(which="both", length=0)
    axes.minorticks_off()
    return image
