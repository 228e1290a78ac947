"""How close our jets are to the real JetClass: networks trained on the real one judge them.

    python benchmarks/simulation_fidelity.py --jets-folder DIR      (jets of `partt simulate`)
    python benchmarks/simulation_fidelity.py --jets 1000 --workers 2   (makes them first)

Prints the tables in docs/reference/simulation.md, writes its figure and a JSON file.
"""

import argparse
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import roc_auc_score
from weaver.nn.model.ParticleNet import ParticleNet

from partt.cli.main import main as partt_command
from partt.data.files.tables import read_columns
from partt.data.jagged import Jagged, Table
from partt.simulation.processes import LABELS, PROCESSES

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT.parent / "shared" / "reference"
Array = npt.NDArray[Any]
Judgements = dict[str, dict[str, dict[str, float]]]  # network, jets, figure of merit

MOMENTA = ["part_px", "part_py", "part_pz", "part_energy"]
ANGLES = ["part_deta", "part_dphi"]
KINDS = [f"part_is{kind}" for kind in ("ChargedHadron", "NeutralHadron", "Photon", "Electron", "Muon")]
TRACK = ["part_d0val", "part_d0err", "part_dzval", "part_dzerr"]
JET = ["jet_pt", "jet_energy", "jet_eta", "jet_nparticles", "jet_sdmass"]
BRANCHES = [*MOMENTA, *ANGLES, "part_charge", *KINDS, *TRACK, *JET]
MAX_PARTICLES = 128

# What the real JetClass gives: accuracy and AUC of the 500 jets, or published (100 M jets, arXiv:2202.03772).
PUBLISHED = {"kin": (0.718, 0.957), "full": (0.844, 0.9849)}


@dataclass
class JetArrays:
    """Jets of all classes, padded: columns (N, 128), mask True for particles."""

    columns: dict[str, Array]
    mask: Array
    labels: Array  # (N,) class numbers
    jet: dict[str, Array]

    def __len__(self) -> int:
        return len(self.labels)


def pad(column: Jagged) -> Array:
    """Return a jagged column as (N, 128), zero where there is no particle."""
    rows = np.repeat(np.arange(len(column)), column.lengths)
    place = np.arange(len(column.contents)) - np.repeat(column.offsets[:-1], column.lengths)
    padded = np.zeros((len(column), MAX_PARTICLES))
    kept = place < MAX_PARTICLES
    padded[rows[kept], place[kept]] = column.contents[kept]
    return padded


def load_ours(folder: Path) -> JetArrays:
    """Read the files of `partt simulate`."""
    tables: list[Table] = []
    labels = []
    for number, process in enumerate(PROCESSES):
        for path in sorted(folder.glob(f"**/{process.file_prefix}_[0-9]*.root")):
            tables.append(read_columns(str(path), BRANCHES))
            labels += [number] * len(tables[-1]["jet_pt"])
    columns = {
        name: np.concatenate([pad(table[name]) for table in tables])  # type: ignore[arg-type]
        for name in BRANCHES
        if name.startswith("part")
    }
    jet = {name: np.concatenate([table[name] for table in tables]) for name in JET}
    mask = np.arange(MAX_PARTICLES) < jet["jet_nparticles"][:, None]
    return JetArrays(columns, mask, np.array(labels), jet)


def load_real() -> JetArrays:
    """Read the 500 real jets; jet_pt and jet_energy are those of the constituents' sum."""
    data = np.load(REFERENCE / "jetclass_500_real_jets.npz")
    columns = {name: data["momenta"][:, i].astype(float) for i, name in enumerate(MOMENTA)}
    columns |= {name: data["points"][:, i].astype(float) for i, name in enumerate(ANGLES)}
    mask = data["mask"][:, 0] > 0
    columns = {name: values * mask for name, values in columns.items()}
    total = {name: columns[name].sum(axis=1) for name in MOMENTA}
    jet = {
        "jet_pt": np.hypot(total["part_px"], total["part_py"]),
        "jet_energy": total["part_energy"],
        "jet_nparticles": mask.sum(axis=1),
    }
    return JetArrays(columns, mask, data["labels"].argmax(axis=1), jet)


def features(jets: JetArrays, kind: str) -> Array:
    """Return the inputs of the networks (N, F, 128), as JetClass_{kin,full}.yaml of ParT define them."""
    column, mask = jets.columns, jets.mask
    pt = np.hypot(column["part_px"], column["part_py"])
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = [
            (np.log(pt) - 1.7) * 0.7,
            (np.log(column["part_energy"]) - 2.0) * 0.7,
            (np.log(pt / jets.jet["jet_pt"][:, None]) + 4.7) * 0.7,
            (np.log(column["part_energy"] / jets.jet["jet_energy"][:, None]) + 4.7) * 0.7,
            (np.hypot(column["part_deta"], column["part_dphi"]) - 0.2) * 4.0,
        ]
    values = [np.clip(one, -5, 5) for one in scaled]
    if kind == "full":
        values += [column["part_charge"], *(column[name] for name in KINDS)]
        values += [np.tanh(column["part_d0val"]), np.clip(column["part_d0err"], 0, 1)]
        values += [np.tanh(column["part_dzval"]), np.clip(column["part_dzerr"], 0, 1)]
    values += [column["part_deta"], column["part_dphi"]]
    return np.where(mask[:, None], np.stack(values, axis=1), 0.0).astype(np.float32)


def judge(jets: JetArrays, kind: str) -> Array:
    """Return the softmax scores (N, 10) of ParticleNet, weaver-core's, trained on the real JetClass."""
    state = torch.load(REFERENCE / f"ParticleNet_{kind}.pt", map_location="cpu", weights_only=True)
    network = ParticleNet(
        input_dims=7 if kind == "kin" else 17,
        num_classes=10,
        conv_params=[(16, (64,) * 3), (16, (128,) * 3), (16, (256,) * 3)],
        fc_params=[(256, 0.1)],
        use_fusion=False,
        use_fts_bn=True,
        use_counts=True,
        trim=False,  # it would cut below the 17 particles that 16 neighbours need
    )
    network.load_state_dict({name.removeprefix("mod."): value for name, value in state.items()})
    network.eval()
    points = np.stack([jets.columns[name] for name in ANGLES], axis=1).astype(np.float32)
    inputs = features(jets, kind)
    scores = np.zeros((len(jets), 10))
    order = np.argsort(jets.mask.sum(axis=1), kind="stable")
    for rows in np.array_split(order, max(1, len(order) // 64)):
        longest = max(17, int(jets.mask[rows].sum(axis=1).max()))
        with torch.no_grad():
            logits = network(
                *(torch.from_numpy(array[rows][..., :longest]) for array in (points, inputs)),
                torch.from_numpy(jets.mask[rows][:, None, :longest].astype(np.float32)),
            )
        scores[rows] = torch.softmax(logits, dim=1).numpy()
    return scores


def accuracy_and_auc(jets: JetArrays, scores: Array) -> dict[str, float]:
    """Return the mean over classes of the fraction found, its error, and the one-vs-one AUC."""
    right = scores.argmax(axis=1) == jets.labels
    of_class = [right[jets.labels == number] for number in range(10)]
    variance = [one.mean() * (1 - one.mean()) / len(one) for one in of_class]
    return {
        "accuracy": float(np.mean([one.mean() for one in of_class])),
        "accuracy_error": float(np.sqrt(np.sum(variance)) / 10),
        "auc": float(roc_auc_score(jets.labels, scores, multi_class="ovo", average="macro")),
        **{f"found_{label}": float(one.mean()) for label, one in zip(LABELS, of_class, strict=True)},
    }


def masses(jets: JetArrays) -> Array:
    """Return the mass of the constituents' sum."""
    px, py, pz, energy = (jets.columns[name].sum(axis=1) for name in MOMENTA)
    squares: Array = np.maximum(energy**2 - px**2 - py**2 - pz**2, 0.0)
    return np.sqrt(squares)


def median_error(values: Array) -> float:
    """Return the standard error of the median, by the bootstrap."""
    random = np.random.default_rng(1)
    return float(np.median(random.choice(values, (500, len(values))), axis=1).std())


def compare_classes(ours: JetArrays, real: JetArrays) -> dict[str, dict[str, float]]:
    """Return mean multiplicity and median mass by class, and how many standard errors they differ by."""
    rows = {}
    count = [jets.mask.sum(axis=1) for jets in (ours, real)]
    mass = [masses(jets) for jets in (ours, real)]
    for number, label in enumerate(LABELS):
        inside = [jets.labels == number for jets in (ours, real)]
        row: dict[str, float] = {"jets": float(inside[0].sum()), "real_jets": float(inside[1].sum())}
        for name, values, centre, error in (
            ("multiplicity", count, np.mean, lambda v: v.std() / np.sqrt(len(v))),
            ("mass", mass, np.median, median_error),
        ):
            selected = [v[i] for v, i in zip(values, inside, strict=True)]
            mine, theirs = (float(centre(v)) for v in selected)
            row |= {f"{name}": mine, f"real_{name}": theirs, f"{name}_ratio": mine / theirs}
            row[f"{name}_pull"] = (mine - theirs) / math.hypot(*(float(error(v)) for v in selected))
        rows[label] = row
    return rows


def quirks(jets: JetArrays) -> dict[str, float]:
    """Return the marks of the end-point eta: far particles, and the mismatch of jet_eta."""
    deta = jets.columns["part_deta"][jets.mask]
    distance = np.hypot(deta, jets.columns["part_dphi"][jets.mask])
    found = {
        "particles with |deta| > 1 (%)": 100 * float((np.abs(deta) > 1).mean()),
        "particles with dR > 0.8 (%)": 100 * float((distance > 0.8).mean()),
        "median jet pT (GeV)": float(np.median(jets.jet["jet_pt"])),
    }
    if "jet_eta" in jets.jet:
        px, py, pz = (jets.columns[name].sum(axis=1) for name in MOMENTA[:3])
        summed = np.arcsinh(pz / np.hypot(px, py))
        mismatch = np.abs(summed - jets.jet["jet_eta"])
        found["median |jet_eta - eta of the constituents|"] = float(np.median(mismatch))
    return found


def draw(ours: JetArrays, real: JetArrays, path: Path) -> None:
    """Draw our distributions (lines) over the 500 real jets (points with their Poisson errors)."""
    columns: dict[str, tuple[Array, Callable[[JetArrays], Any]]] = {
        "particles per jet": (np.linspace(0, 120, 16), lambda j: (j.mask.sum(axis=1), None)),
        "jet mass (GeV)": (np.linspace(0, 250, 16), lambda j: (masses(j), None)),
        "particle pT (GeV)": (
            np.geomspace(0.1, 500, 20),
            lambda j: (np.hypot(j.columns["part_px"], j.columns["part_py"]), j.mask),
        ),
        "particle dR to the jet axis": (
            np.geomspace(0.003, 3, 20),
            lambda j: (np.hypot(j.columns["part_deta"], j.columns["part_dphi"]), j.mask),
        ),
    }
    figure, axes = plt.subplots(10, 4, figsize=(13, 22), constrained_layout=True)
    for number, label in enumerate(LABELS):
        for axis, (title, (edges, of_jets)) in zip(axes[number], columns.items(), strict=True):
            for jets in (ours, real):
                inside = jets.labels == number
                values, mask = of_jets(jets)
                selected = values[inside] if mask is None else values[inside][mask[inside]]
                counts, _ = np.histogram(selected, edges)
                scale = 1 / max(inside.sum(), 1) if mask is not None else 1 / max(counts.sum(), 1)
                is_log = mask is not None
                centres = np.sqrt(edges[1:] * edges[:-1]) if is_log else (edges[1:] + edges[:-1]) / 2
                name = f"{'JetClass' if jets is real else 'partt'}, {inside.sum()} jets"
                if jets is real:
                    error = np.sqrt(counts) * scale
                    axis.errorbar(
                        centres,
                        counts * scale,
                        error,
                        fmt="k.",
                        ms=5,
                        lw=1,
                        label=name,
                    )
                else:
                    axis.stairs(
                        counts * scale,
                        edges,
                        color="C0",
                        lw=1.4,
                        fill=False,
                        label=name,
                    )
            axis.set_ylim(0)
            if "particle " in title:
                axis.set_xscale("log")
            if number == 9:
                axis.set_xlabel(title)
        axes[number][0].set_ylabel(f"{label}\nfraction of jets")
        axes[number][2].set_ylabel("particles per jet")
        axes[number][0].legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def report(ours: JetArrays, real: JetArrays, judges: Judgements) -> dict[str, Any]:
    """Print the tables and return their numbers."""
    print("\n| judge | jets | accuracy | AUC (one vs one) |\n|---|---|---|---|")
    for kind, results in judges.items():
        reference = "the 500 jets" if kind == "kin" else "published"
        accuracy, auc = PUBLISHED[kind]
        print(f"| ParticleNet_{kind} | real JetClass, {reference} | {accuracy} | {auc} |")
        for name, one in results.items():
            accuracy_text = f"{one['accuracy']:.4f} +- {one['accuracy_error']:.4f}"
            print(f"| ParticleNet_{kind} | {name} | {accuracy_text} | {one['auc']:.4f} |")
    classes = compare_classes(ours, real)
    print("\n| class | multiplicity: ours, real, pull | median mass: ours, real, pull | found by full |")
    print("|---|---|---|---|")
    for label, row in classes.items():
        found = judges["full"]["partt"][f"found_{label}"]
        texts = [
            f"{row[name]:.1f}, {row[f'real_{name}']:.1f}, {row[f'{name}_pull']:+.1f}"
            for name in ("multiplicity", "mass")
        ]
        print(f"| {label} | {' | '.join(texts)} | {found:.3f} |")
    averages = {}
    for name in ("multiplicity", "mass"):
        ratios = np.array([row[f"{name}_ratio"] for row in classes.values()])
        averages[name] = {
            "mean_deviation": float(ratios.mean() - 1),
            "mean_absolute_deviation": float(np.abs(ratios - 1).mean()),
            "largest_pull": float(max(abs(row[f"{name}_pull"]) for row in classes.values())),
        }
        print(f"\n{name}: " + ", ".join(f"{key} {value:.4f}" for key, value in averages[name].items()))
    marks = {"partt": quirks(ours), "the 500 real jets": quirks(real)}
    print(json.dumps(marks, indent=1))
    return {"judges": judges, "classes": classes, "averages": averages, "quirks": marks}


def main() -> None:
    """Make or read the jets, judge them, write tables and figure."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--jets-folder", type=Path, help="jets made with `partt simulate`")
    parser.add_argument("--jets", type=int, default=1000, help="per class, if they are made")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--figure", type=Path, default=ROOT / "docs" / "reference" / "simulation_fidelity.png"
    )
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "simulation_fidelity.json")
    options = parser.parse_args()
    mpl.use("agg")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.jets_folder or Path(temporary)
        if options.jets_folder is None:
            words = f"simulate --out {folder} --jets {options.jets} --seed 1 --workers {options.workers}"
            if partt_command(words.split()) != 0:
                raise SystemExit("the simulation failed")
        ours, real = load_ours(folder), load_real()
    judges = {kind: {"partt": accuracy_and_auc(ours, judge(ours, kind))} for kind in ("kin", "full")}
    judges["kin"]["the 500 real jets"] = accuracy_and_auc(real, judge(real, "kin"))
    results = report(ours, real, judges)
    draw(ours, real, options.figure)
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
