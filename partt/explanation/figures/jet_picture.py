"""A picture of one jet: particles, subjets, attention and scores.

Axes: P particles.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon

from partt.atomic_files import refuse_foreign
from partt.explanation.jet_display import JetDisplay, strongest_links
from partt.jobs.output_folder import writing_to
from partt.pages.style import house_style, plain, save_figure
from partt.regular_files import MAX_BYTES, read_bounded
from partt.scores.passing import Floats

KIND_COLOURS = {
    "electron": "#e76300", "muon": "#bd1f01", "photon": "#ffa90e", "charged hadron": "#3f90da",
    "neutral hadron": "#94a4a2", "charged": "#3f90da", "neutral": "#94a4a2",
}  # fmt: skip
OTHER_COLOUR = "#717581"
RADIUS = 0.8
MAKER = "partt show"  # in the metadata of the pictures
MIN_REACH = 0.2  # of the axes
MAX_BARS = 12


def draw_jet(jet: JetDisplay) -> Figure:
    """Draw particles and subjets, where the network looks, and the scores."""
    num_panels = 3 if jet.attention is not None else 2
    figure = Figure(figsize=(4.9 * num_panels - 0.7, 5.1), layout="constrained")
    all_axes = figure.subplots(1, num_panels, width_ratios=[1] * (num_panels - 1) + [0.55])
    areas = 12 + 220 * jet.pt / max(float(jet.pt.max(initial=0)), 1e-9)
    first = all_axes[0]
    _outline_subjets(first, jet)
    _scatter(first, jet, areas)
    figure.legend(handles=_legend(jet), loc="outside lower left", ncols=8, fontsize=9)
    title = "area: pT" + ("; dashed: three subjets" if jet.subjets is not None else "")
    first.set_title(title, fontsize=10)
    if jet.attention is not None:
        second = all_axes[1]
        _draw_links(second, jet, jet.attention.particles[-1].mean(axis=0))
        given = jet.attention.token.mean(axis=(0, 1))
        _scatter(second, jet, 4 + 1400 * given)
        second.set_title(
            f"area: attention of the class token; lines: {jet.attention.blocks[-1]}", fontsize=10
        )
        second.set_ylabel("")
    _draw_scores(all_axes[-1], jet)
    truth = f"{plain(jet.label)} jet" if jet.label else "jet"
    facts = f"pT {jet.jet_pt:.0f} GeV, mass {jet.jet_mass:.0f} GeV, {len(jet.pt)} particles"
    figure.suptitle(f"{truth}, {facts}", fontsize=12)
    return figure


def write_pictures(jets: Sequence[JetDisplay], folder: Path, *, overwrite: bool) -> list[Path]:
    """Write each jet as PNG and PDF; return the paths.

    Files that were not made by `partt show` are replaced only with `overwrite`.
    """
    names = picture_names(jets)
    paths = [folder / f"{name}.{suffix}" for name in names for suffix in ("png", "pdf")]
    for path in paths:
        refuse_foreign(
            path, MAKER, lambda path: MAKER.encode() in read_bounded(path, MAX_BYTES), overwrite=overwrite
        )
    with writing_to(folder, paths), house_style():
        for jet, name in zip(jets, names, strict=True):
            save_figure(draw_jet(jet), folder, name, MAKER)
    return paths


def picture_names(jets: Sequence[JetDisplay]) -> list[str]:
    """Return FILE_ENTRY for each jet; several jets of one entry, which is an event, are numbered from 1."""
    entries = [f"{Path(jet.file).stem}_{jet.entry}" for jet in jets]
    return [
        f"{entry}_{entries[:number].count(entry) + 1}" if entries.count(entry) > 1 else entry
        for number, entry in enumerate(entries)
    ]


def _scatter(axes: Axes, jet: JetDisplay, areas: Floats) -> None:
    order = np.argsort(-areas, kind="stable")  # small ones in front
    eta, phi = jet.places[order].T
    axes.scatter(
        eta,
        phi,
        s=areas[order],
        c=[KIND_COLOURS.get(jet.kinds[particle], OTHER_COLOUR) for particle in order],
        edgecolors=["black" if displaced else "white" for displaced in jet.displaced[order]],
        linewidths=[1.3 if displaced else 0.5 for displaced in jet.displaced[order]],
        zorder=3,
    )
    axes.add_patch(Circle((0, 0), RADIUS, fill=False, color="0.75", linewidth=0.8))
    reach = max(1.12 * float(np.abs(jet.places).max(initial=0)), MIN_REACH)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="Δη", ylabel="Δφ")


def _outline_subjets(axes: Axes, jet: JetDisplay) -> None:
    if jet.subjets is None:
        return
    for number in np.unique(jet.subjets):
        outline = hull(jet.places[jet.subjets == number])
        patch = Polygon(outline, facecolor="0.95", edgecolor="0.5", linestyle="--", linewidth=0.9, zorder=1)
        axes.add_patch(patch)


def hull(points: Floats, margin: float = 0.03) -> Floats:
    """Return a polygon around points (P, 2), with a margin."""
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    around = (points[:, None] + margin * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    from scipy.spatial import ConvexHull  # noqa: PLC0415 - takes a moment to import

    outline: Floats = around[ConvexHull(around).vertices]
    return outline


def _draw_links(axes: Axes, jet: JetDisplay, attention: Floats) -> None:
    links = strongest_links(attention)
    segments = [jet.places[[first, second]] for first, second, _ in links]
    strengths = np.array([weight for *_, weight in links])
    colours = [(0.35, 0.2, 0.55, float(min(1.0, 0.12 + weight))) for weight in strengths]
    axes.add_collection(
        LineCollection(segments, colors=colours, linewidths=list(0.4 + 4 * strengths), zorder=2)
    )


def _draw_scores(axes: Axes, jet: JetDisplay) -> None:
    shown = np.sort(np.argsort(-jet.scores, kind="stable")[:MAX_BARS])
    names = [jet.class_names[number] for number in shown]
    colours = ["#1f5fa8" if name == jet.label else "#b8c4d6" for name in names]
    axes.barh(range(len(shown)), jet.scores[shown], color=colours)
    for place, score in enumerate(jet.scores[shown]):
        axes.text(score + 0.02, place, f"{score:.3f}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [plain(name) for name in names])
    axes.tick_params(axis="y", which="both", length=0)
    axes.minorticks_off()
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.25), xticks=[0, 0.5, 1], xlabel="score")
    axes.set_title("scores" + (" (dark: true class)" if jet.label else ""), fontsize=10)


def _legend(jet: JetDisplay) -> list[Line2D]:
    names = [name for name in (*KIND_COLOURS, "unknown", "particle") if name in jet.kinds]
    marks = [_mark(KIND_COLOURS.get(name, OTHER_COLOUR), name) for name in names]
    if jet.displaced.any():
        mark = _mark("white", "displaced")
        mark.set_markeredgecolor("black")
        marks.append(mark)
    return marks


def _mark(colour: str, label: str) -> Line2D:
    return Line2D([], [], marker="o", linestyle="", color=colour, label=label, markersize=6)
