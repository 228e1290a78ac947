"""Bars: what the AUC loses when an input is shuffled."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from partt.explanation.permutation_importance import FEATURE, Importance
from partt.pages.drawing import Drawing
from partt.pages.style import COLOURS, plain

MAX_BARS = 40


def draw_importance(found: Sequence[Importance]) -> Drawing:
    """Draw the losses of groups and of single features, the largest first."""
    parts = [
        [one for one in found if one.change.kind != FEATURE],
        [one for one in found if one.change.kind == FEATURE],
    ]
    parts = [sorted(part, key=lambda one: -one.losses.area.loss)[:MAX_BARS] for part in parts if part]
    height = 1.4 + 0.3 * max(map(len, parts))
    figure = Figure(figsize=(6.4 * len(parts), height), layout="constrained")
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        losses = [one.losses.area for one in part]
        errors = [[loss.loss - loss.low for loss in losses], [loss.high - loss.loss for loss in losses]]
        places = range(len(part))
        axes.barh(places, [loss.loss for loss in losses], xerr=errors, color=COLOURS[0],
                  error_kw={"ecolor": "0.25", "elinewidth": 1.2})  # fmt: skip
        axes.set_yticks(places, [plain(one.change.name) for one in part])
        axes.tick_params(axis="y", which="both", length=0)
        axes.minorticks_off()
        axes.invert_yaxis()
        axes.axvline(0, color="0.3", linewidth=0.8)
        axes.set_xlabel("loss of AUC")
        axes.set_title("single features" if part[0].change.kind == FEATURE else "groups, soft particles")
    return Drawing(
        "importance",
        "Permutation importance",
        "What the mean AUC loses when inputs are shuffled among the particles of all jets, or soft particles "
        "are left out. Lines are 68 % intervals. Features that say the same share their importance: one of "
        "them may cost little because the others are still there; groups show that.",
        figure,
    )
