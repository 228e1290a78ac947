"""Draw the figures of the page on the Particle Transformer from real jets and a trained network.

    python docs/explanation/make_figures.py --tagger runs/part --jets 'jets/test/*.root'

The tagger is a Particle Transformer with pair features (`jetclass_part_full`), the jets are simulated ones.
The jet that is drawn is the first hadronic top with 25 to 40 particles, a soft-drop mass near that of the
top, and three clear prongs (small tau3 / tau2).
"""

import argparse
import io
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from partt.data.files.lists import expand_files
from partt.data.files.tables import inspect_file
from partt.data.jet_batch import take_inputs
from partt.data.packing import pack
from partt.data.variables import labels_of, names_for, read_variables, select
from partt.jet_inputs import JetInputs
from partt.model.inspection import JetInspection, inspect_jets
from partt.physics.pair_features import pair_features
from partt.tagger.loading import load_torch_tagger
from partt.tagger.tagger_file import TorchTagger

HERE = Path(__file__).parent
KINDS = {
    "charged hadron": ("part_isChargedHadron", "#4477aa"),
    "neutral hadron": ("part_isNeutralHadron", "#ccbb44"),
    "photon": ("part_isPhoton", "#228833"),
    "electron": ("part_isElectron", "#ee6677"),
    "muon": ("part_isMuon", "#aa3377"),
}
TITLES = {
    "ln_kt": r"$\ln\,k_\mathrm{T}$ / GeV",
    "ln_z": r"$\ln\,z$",
    "ln_delta": r"$\ln\,\Delta$",
    "ln_m2": r"$\ln\,m^2$ / GeV$^2$",
}

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """One jet, its particles sorted by prong and decreasing pT, and its attention maps and scores."""

    deta: Array  # (P,)
    dphi: Array  # (P,)
    pt: Array  # (P,) GeV
    prongs: npt.NDArray[np.int64]  # (P,) 0, 1, 2
    colors: list[str]
    pairs: Array  # (4, P, P) pair features
    inner: JetInspection
    class_names: tuple[str, ...]


def main() -> None:
    """Choose a jet and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tagger", required=True)
    parser.add_argument("--jets", nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plt.rcParams |= {"font.size": 9, "axes.titlesize": 10, "figure.dpi": 110}
    tagger = load_torch_tagger(options.tagger)
    picture = choose_jet(tagger, options.jets)
    for name, draw in {
        "jet": draw_jet,
        "pair_features": draw_pairs,
        "attention": draw_attention,
        "class_attention": draw_class_attention,
    }.items():
        save(draw(picture), options.out / f"{name}.png")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a small PNG, with 256 colours."""
    drawn = io.BytesIO()
    figure.savefig(drawn, bbox_inches="tight")
    Image.open(drawn).convert("RGB").quantize(256).save(path, optimize=True)


def choose_jet(tagger: TorchTagger, patterns: list[str]) -> Picture:
    """Return the first jet that shows a top decay well."""
    config = tagger.data_config
    names = names_for(config, "predict") | set(config.label_variables)
    top = tagger.class_names.index("Tbqq")
    for file in expand_files(patterns):
        info = inspect_file(file.url, config.treename)
        for chunk in info.chunks:
            variables = select(config, read_variables(config, names, info, *chunk), "predict")
            inputs = pack(config, variables).inputs
            mass, tau2, tau3 = (variables.per_jet(f"jet_{name}") for name in ("sdmass", "tau2", "tau3"))
            lengths = inputs.lengths.numpy()
            good = (labels_of(config, variables) == top) & (lengths >= 25) & (lengths <= 40)
            good &= (abs(mass - 173) < 15) & (tau3 < 0.35 * tau2)
            if good.any():
                return make_picture(tagger, take_inputs(inputs, np.flatnonzero(good)[:1]))
    raise SystemExit("no such top jet in these files")


def make_picture(tagger: TorchTagger, jet: JetInputs) -> Picture:
    """Compute what is drawn of one jet."""
    names = [variable.name for variable in tagger.data_config.particles.variables]
    particles = jet.main

    def feature(name: str) -> Array:
        values: Array = particles.features[:, names.index(name)].double().numpy()
        return values

    pt = np.hypot(*particles.momenta[:, :2].double().numpy().T)
    deta, dphi = feature("part_deta"), feature("part_dphi")
    prongs = find_prongs(deta, dphi, pt)
    order = np.lexsort([-pt, prongs])
    particles = particles.with_rows(lambda rows: rows[order])
    (inner,) = inspect_jets(tagger.network, JetInputs({"pf": particles}))
    size = len(order)
    first, second = (index.flatten() for index in torch.meshgrid(*[torch.arange(size)] * 2, indexing="ij"))
    pairs = pair_features(particles.momenta.double(), first, second).T.reshape(4, size, size).numpy()
    colors = [
        next((color for branch, color in KINDS.values() if row[names.index(branch)] > 0.5), "gray")
        for row in particles.features
    ]
    columns = (values[order] for values in (deta, dphi, pt, prongs))
    return Picture(*columns, colors, pairs, inner, tagger.class_names)


def find_prongs(deta: Array, dphi: Array, pt: Array) -> npt.NDArray[np.int64]:
    """Return to which of three prongs each particle (P,) belongs, the hardest first.

    Seeds are the hardest particles that are 0.25 apart; a particle belongs to the nearest seed.
    """
    places = np.stack([deta, dphi], axis=1)
    seeds: list[int] = []
    for particle in np.argsort(-pt):
        if all(np.hypot(*(places[particle] - places[seed])) > 0.25 for seed in seeds):
            seeds.append(int(particle))
    distances = np.stack([np.hypot(*(places - places[seed]).T) for seed in seeds[:3]])
    return distances.argmin(axis=0)


def draw_particles(axes: Axes, picture: Picture, areas: Array) -> None:
    """Draw the particles in the plane of the detector."""
    axes.scatter(
        picture.deta, picture.dphi, areas, picture.colors, edgecolors="white", linewidths=0.6, zorder=3
    )
    axes.add_patch(plt.Circle((0, 0), 0.8, fill=False, color="0.7", linestyle="--", linewidth=0.8))
    ticks = (-0.8, -0.4, 0, 0.4, 0.8)
    axes.set(xlim=(-0.85, 0.85), ylim=(-0.85, 0.85), xticks=ticks, yticks=ticks, aspect="equal")
    axes.set(xlabel=r"$\Delta\eta$", ylabel=r"$\Delta\phi$")


def area_of(pt: Array | float) -> Array | float:
    """Return the area of a point by its momentum in GeV."""
    return 6 + 3 * pt


def draw_jet(picture: Picture) -> Figure:
    """Draw the jet itself."""
    figure, axes = plt.subplots(figsize=(5.6, 4.4))
    draw_particles(axes, picture, area_of(picture.pt))
    for prong, name in enumerate("ABC"):
        inside = picture.prongs == prong
        place = [
            np.average(values[inside], weights=picture.pt[inside]) for values in (picture.deta, picture.dphi)
        ]
        axes.annotate(name, place, (-22, -4), textcoords="offset points", fontsize=13, weight="bold")
    present = [(name, color) for name, (_, color) in KINDS.items() if color in picture.colors]
    handles = [
        plt.Line2D([], [], marker="o", linestyle="", color=color, label=name) for name, color in present
    ]
    handles += [
        plt.Line2D(
            [], [], marker="o", linestyle="", color="0.6", markersize=np.sqrt(area_of(pt)), label=f"{pt} GeV"
        )
        for pt in (5, 50)
    ]
    axes.legend(
        handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, labelspacing=0.9
    )
    axes.set_title(f"a simulated t → bqq jet: {len(picture.pt)} particles")
    return figure


def draw_pairs(picture: Picture) -> Figure:
    """Draw the four features of all pairs."""
    figure, all_axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
    for axes, values, title in zip(all_axes, picture.pairs, TITLES.values(), strict=True):
        shown = values.copy()
        np.fill_diagonal(shown, np.nan)  # the pair of a particle with itself
        image = axes.imshow(shown, cmap="viridis", interpolation="nearest")
        axes.set(title=title, xlabel="particle $j$")
        figure.colorbar(image, ax=axes, shrink=0.75)
        edges = np.cumsum(np.bincount(picture.prongs))
        for edge in edges[:-1] - 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
            axes.axvline(edge, color="white", linewidth=1.5)
        centres = edges - np.bincount(picture.prongs) / 2 - 0.5
        axes.set_xticks(centres, "ABC")
        axes.set_yticks(centres, "ABC")
        axes.tick_params(length=0)
    all_axes[0].set_ylabel("particle $i$")
    return figure


def draw_attention(picture: Picture) -> Figure:
    """Draw the attention in the first and the last block, for the heads that focus most on one particle."""
    attention = picture.inner.attention.numpy()  # (L, H, P, P)
    num_blocks, num_heads = attention.shape[:2]
    figure, rows = plt.subplots(2, 3, figsize=(9, 6.2), layout="constrained", sharex=True, sharey=True)
    to_others = attention * (1 - np.eye(attention.shape[-1], dtype=attention.dtype))
    for row, block in zip(rows, (0, num_blocks - 1), strict=True):
        heads = np.argsort(-to_others[block].max(axis=(1, 2)))[: len(row)]
        for axes, head in zip(row, sorted(heads), strict=True):
            draw_links(axes, picture, attention[block, head])
            axes.set_title(f"block {block + 1} of {num_blocks}, head {head + 1} of {num_heads}")
            axes.label_outer()
    return figure


def draw_links(axes: Axes, picture: Picture, attention: Array) -> None:
    """Draw a line from each particle to those that it attends to, as strong as the attention."""
    places = np.stack([picture.deta, picture.dphi], axis=1)
    weights = np.maximum(attention, attention.T)
    first, second = np.nonzero(np.triu(weights > 0.05, 1))
    strength = weights[first, second]
    order = np.argsort(strength)
    segments = np.stack([places[first[order]], places[second[order]]], axis=1)
    lines = LineCollection(
        list(segments),
        colors=[(0.8, 0.2, 0.1, min(1, 0.1 + s)) for s in strength[order]],
        linewidths=0.3 + 2.5 * strength[order],
    )
    axes.add_collection(lines)
    draw_particles(axes, picture, area_of(picture.pt) / 2)


def draw_class_attention(picture: Picture) -> Figure:
    """Draw the attention of the class token, and the scores."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.5, 3.7), layout="constrained", width_ratios=[1, 1.1]
    )
    looks = picture.inner.class_attention.numpy()[-1, :, 1:].mean(axis=0)  # (P,) mean over the heads
    shares = looks / looks.sum()
    draw_particles(left, picture, 8 + 3000 * shares)
    left.set_title("area: attention of the class token")
    scores = picture.inner.logits.softmax(0).numpy()
    right.barh(picture.class_names, scores, color="#4477aa")
    for place, score in enumerate(scores):
        right.text(score + 0.01, place, f"{score:.3f}", va="center", fontsize=8)
    right.invert_yaxis()
    right.set(xlabel="score", xlim=(0, 1.12), title="the scores of this jet")
    return figure


if __name__ == "__main__":
    main()
