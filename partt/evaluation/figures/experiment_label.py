"""The label of an experiment above a figure, as mplhep sets it: the name in bold, what follows in italics."""

from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea

from partt.errors import ConfigError
from partt.pages.drawing import Drawing
from partt.pages.names import check_name
from partt.pages.style import arrange

HEIGHT = 0.36  # inches
SPECIAL = "$\\{}^_%"  # what mathematics in matplotlib would interpret


def check_label(label: str) -> None:
    """Raise an error for a label that cannot be drawn; none is fine."""
    if label:
        check_name("the experiment", label)
    if set(label) & set(SPECIAL):
        raise ConfigError(f"--label {label!r}: should be plain text, like 'CMS Simulation Preliminary'")


def labelled(drawing: Drawing, label: str) -> Drawing:
    """Add a strip with the label, if there is one, above a figure; what is below keeps its size and place."""
    if not label:
        return drawing
    figure = drawing.figure
    arrange(figure)
    height = figure.get_figheight()
    part = height / (height + HEIGHT)  # of the new height
    for axes in figure.axes:
        box = axes.get_position()
        axes.set_position((box.x0, box.y0 * part, box.width, box.height * part))
    for text in (figure._supxlabel, figure._supylabel, figure._suptitle):  # type: ignore[attr-defined] # noqa: SLF001
        if text is not None:
            text.set_y(text.get_position()[1] * part)
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, 0, 1, part), figure.transFigure)
    figure.set_figheight(height + HEIGHT)
    _add_text(figure, label)
    hover = [
        {**panel, "box": [x0, 1 - (1 - y0) * part, x1, 1 - (1 - y1) * part]}
        for panel in drawing.hover
        for x0, y0, x1, y1 in [panel["box"]]
    ]
    return replace(drawing, hover=hover)


def _add_text(figure: Figure, label: str) -> None:
    name, _, rest = label.partition(" ")
    parts: list[Any] = [TextArea(name, textprops={"fontweight": "bold", "fontsize": 15})]
    if rest:
        parts.append(TextArea(rest, textprops={"fontstyle": "italic", "fontsize": 12}))
    packed = HPacker(children=parts, align="baseline", pad=0, sep=5)
    left = min((axes.get_position().x0 for axes in figure.axes), default=0.05)
    figure.add_artist(
        AnchoredOffsetbox(
            "upper left",
            child=packed,
            frameon=False,
            pad=0,
            borderpad=0.35,
            bbox_to_anchor=(left, 1),
            bbox_transform=figure.transFigure,
        )
    )
