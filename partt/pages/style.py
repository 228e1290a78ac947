"""Style of all figures, and how they are written."""

import base64
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from partt.atomic_files import atomic_path
from partt.pages.names import shorten

# Ten colours that can be told apart with any colour vision (M. Petroff, arXiv:2107.02270).
COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#94a4a2",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
MAX_DRAWN = 12  # classes, discriminants or models in one figure
MAX_LABEL = 40  # characters
MAX_SVG = 200_000  # bytes of a figure in a web page
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*Xph"
DPI = 150
CANVASES: dict[str, Any] = {"pdf": FigureCanvasPdf, "png": FigureCanvasAgg, "svg": FigureCanvasSVG}
_CHANGES: Any = {
    "font.size": 11,
    "font.family": ["TeX Gyre Heros", "DejaVu Sans"],
    "figure.figsize": (6.4, 5.0),
    "figure.dpi": DPI,
    "axes.linewidth": 1.0,
    "axes.labelsize": 12,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "xtick.major.size": 6,
    "xtick.minor.size": 3,
    "ytick.major.size": 6,
    "ytick.minor.size": 3,
    "xtick.major.pad": 4,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.5,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}


def colour(number: int) -> str:
    """Return the colour of the n-th class or model."""
    return COLOURS[number % len(COLOURS)]


def line(number: int) -> Any:
    """Return the line style of the n-th class or model: it changes when colours repeat, after ten."""
    return LINES[number // len(COLOURS) % len(LINES)]


def plain(name: str) -> str:
    """Shorten a name; escape what matplotlib interprets: $ starts mathematics, a first _ hides a label."""
    text = shorten(name, MAX_LABEL).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in mplhep's style, at the size of a page."""
    import mplhep  # noqa: PLC0415 - takes seconds to import

    with rc_context(mplhep.style.CMS), rc_context(_CHANGES), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a box is drawn instead
        warnings.filterwarnings("ignore", message="constrained_layout not applied")  # names too long: overlap
        yield


def grid_shape(number: int) -> tuple[int, int]:
    """Return rows and columns for small panels, with few empty places."""
    columns = {1: 1, 2: 2, 3: 3, 4: 2, 5: 3, 6: 3, 9: 3, 10: 5}.get(number, 4)
    return -(-number // columns), columns


def panels(figure: Figure, number: int, **options: Any) -> Sequence[Any]:
    """Return the axes of small panels; empty places of the grid are removed."""
    rows, columns = grid_shape(number)
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel()
    for empty in axes[number:]:
        empty.remove()
    for index in range(number):  # tick labels go below the last panel of each column
        if index + columns >= number:
            axes[index].tick_params(labelbottom=True)
    return list(axes[:number])


def write_figure(figure: Figure, folder: Path, name: str) -> str:
    """Write a figure as PDF and PNG; return it as a data URI, for a web page.

    That is SVG, or PNG with few colours where the SVG is large: many panels are megabytes of tick marks.
    """
    png = save_figure(figure, folder, name)
    svg = _rendered(figure, "svg")
    if len(svg) <= MAX_SVG:
        return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return f"data:image/png;base64,{base64.b64encode(_few_colours(png)).decode()}"


def save_figure(figure: Figure, folder: Path, name: str, maker: str | None = None) -> bytes:
    """Write a figure as PDF and PNG, with its maker in their metadata; return the latter."""
    arrange(figure)
    notes = {suffix: {key: maker} for suffix, key in (("pdf", "Creator"), ("png", "Software")) if maker}
    rendered = {suffix: _rendered(figure, suffix, notes.get(suffix)) for suffix in ("pdf", "png")}
    for suffix, contents in rendered.items():
        with atomic_path(folder / f"{name}.{suffix}") as temporary:
            temporary.write_bytes(contents)
    return rendered["png"]


def png_uri(figure: Figure) -> str:
    """Return a figure as a PNG with few colours in a data URI, for a notebook."""
    arrange(figure)
    return f"data:image/png;base64,{base64.b64encode(_few_colours(_rendered(figure, 'png'))).decode()}"


def _few_colours(png: bytes) -> bytes:
    """Return a PNG with a palette: a third of the size, and no difference that one sees."""
    from PIL import Image  # noqa: PLC0415 - only for large figures

    sink = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(128).save(sink, "PNG", optimize=True)
    return sink.getvalue()


def arrange(figure: Figure) -> None:
    """Give all axes their places, and keep them there: computing a layout takes longer than drawing."""
    for axes in figure.axes:
        for spine in axes.spines.values():  # they end with the axes; to see it, all ticks would be placed
            spine.set_in_layout(False)
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():  # no search for its place, for the same reason
                axis.set_label_coords(0, 0)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")


def _rendered(figure: Figure, suffix: str, metadata: Mapping[str, str | None] | None = None) -> bytes:
    """Draw to memory: on a full disk, matplotlib would end the process.

    `savefig` would draw everything once more, for a layout that is known.
    """
    sink = io.BytesIO()
    figure.dpi = DPI  # vector formats change it
    getattr(CANVASES[suffix](figure), f"print_{suffix}")(sink, metadata=metadata)
    return sink.getvalue()
