r"""Which tagger for which budget: accuracy and rejection against jets per second, on one thread.

  benchmarks/large_sample.sh SAMPLE 2 val seeds test
  python benchmarks/accuracy_per_second.py SAMPLE RUNS --json benchmarks/accuracy_per_second.json

trains every network on the same 20 000 jets (SAMPLE/seeds), tests it on the same 50 000 others (SAMPLE/test),
measures its speed, and draws the figure of README and docs. The taggers that partt ships, trained on more
jets, are tested beside them. If interrupted, rerun the same command: trainings resume, and what is in the
JSON file already is kept, as are the test jets with the right class, for paired differences with networks
that are trained later. `--parts` and `--networks` do some of it; speed needs no training.

The students have part_xs's settings and jets, and learn the scores of a teacher instead of labels: of the
three part_s of this benchmark, or of the best tagger that partt ships (trained on ten times as many jets).

Rejections are those of the results table: QCD jets at 50 % of each signal (Hqql 99 %, Tbl 99.5 %); the mean
is geometric, and where no QCD jet passes, one is counted. Errors are those of the test jets: binomial for
accuracies, a bootstrap of the QCD jets for rejections. Differences are paired: both networks see the same
jets, which a hash in the JSON file makes sure of.
"""

import argparse
import csv
import hashlib
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from bench_model import NUM_JETS, load_jets, take_turns
from bench_model import _child as model_child

HERE = Path(__file__).parent
CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
EFFICIENCIES = {"Hqql": 0.99, "Tbl": 0.995}  # of the signal; others 0.5
SHIPPED = ("jetclass-small", "jetclass-200k")
NUM_REPLICAS = 200
SPEEDS, TICKS = (130, 60_000), (200, 500, 1000, 2000, 5000, 10_000)  # of the figure, in jets/s
REJECTIONS = (100, 200, 300, 400, 600, 800)  # ticks
WEAVER_LINES: dict[str, Any] = {"torch": ":", "its ONNX export": "--"}
LETTER, LINE, DOT = 9, 20, 8  # sizes in labels and of points, in pixels
CORNERS = ((True, True), (True, False), (False, True), (False, False))  # of a point: right?, up?
Box = tuple[float, float, float, float]  # left, bottom, right, top
COMMON = ("batch_size=128", "jets_per_epoch=20000")
ADAMW = ("optimizer.name=adamw", "schedule.name=one_cycle")  # instead of Ranger
ONE_CYCLE = ("optimizer.weight_decay=0.01", "schedule.rise_fraction=0.3", "schedule.final_factor=0.01")


@dataclass(frozen=True)
class Training:
    """How a network is trained on few jets: small batches, and a learning rate to match."""

    recipe: str
    settings: tuple[str, ...]
    num_seeds: int = 1
    teacher: str = ""  # a network of this benchmark, all its seeds, or a shipped tagger


def _one_cycle(name: str, lr: str, num_seeds: int = 3, teacher: str = "", num_epochs: int = 8) -> Training:
    settings = (f"optimizer.lr={lr}", f"epochs={num_epochs}", *ONE_CYCLE)
    return Training(f"jetclass_{name}", settings, num_seeds, teacher)


TRAININGS = {
    "part_s": _one_cycle("part_s", "5e-3"),
    "part_xs": _one_cycle("part_xs", "5e-3"),
    "slim_xs": _one_cycle("slim_xs", "3e-3"),
    "slim_s": _one_cycle("slim_s", "2e-3"),
    "pfn": Training("jetclass_pfn", ("optimizer.lr=2e-3", "epochs=40")),
    "particlenet": Training("jetclass_particlenet", ("optimizer.lr=5e-3", "epochs=5")),
    "part_m": _one_cycle("part_m", "3e-3", num_seeds=1, num_epochs=6),
    "slim_m": _one_cycle("slim_m", "1e-3", num_seeds=1, num_epochs=6),
    "part": Training("jetclass_part_full", (*ADAMW, "optimizer.lr=2e-3", "epochs=6", *ONE_CYCLE)),
    "student of three part_s": _one_cycle("part_xs", "5e-3", teacher="part_s"),
    "student of jetclass-200k": _one_cycle("part_xs", "5e-3", teacher="jetclass-200k"),
}
PAIRS = (  # the first less the second
    ("slim_s", "part_s"),
    ("slim_xs", "part_xs"),
    ("slim_m", "part_m"),
    ("part_s", "part_xs"),
    ("student of three part_s", "part_xs"),
    ("student of jetclass-200k", "part_xs"),
    ("student of jetclass-200k", "part_s"),
    ("jetclass-200k", "jetclass-small"),
)
PUBLISHED = {  # name here -> row of partt/evaluation/published/jetclass.csv
    "part": "ParT",
    "part_xs": "ParT-v2 xs",
    "part_s": "ParT-v2 s",
    "part_m": "ParT-v2 m",
    "slim_xs": "L-GATr-slim xs",
    "slim_s": "L-GATr-slim s",
    "slim_m": "L-GATr-slim",
    "particlenet": "ParticleNet",
    "pfn": "PFN",
}


def run_name(network: str) -> str:
    """Return the name of a network's folder."""
    return network.replace(" ", "_")


def partt(*words: str) -> None:
    """Run a command of partt with one thread."""
    print("partt", *words, flush=True)
    command = [str(Path(sys.executable).parent / "partt"), *words]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


# --- train and test -------------------------------------------------------------------------------------


def train(network: str, sample: Path, runs: Path) -> None:
    """Train a network once for each seed, or finish what was begun."""
    training = TRAININGS[network]
    settings = [word for setting in (*COMMON, *training.settings) for word in ("--set", setting)]
    teacher: list[str] = []
    if training.teacher:
        cache = str(runs / "cache" / run_name(training.teacher))  # so that the teacher is run once
        teacher = ["--teacher", *map(str, taggers(training.teacher, runs)), "--cache", cache]
        settings += ["--set", "distillation={temperature: 1.0, label_weight: 0.0}"]
    for number, run in enumerate(taggers(network, runs), start=1):
        files = ("--train", str(sample / "seeds" / "*.root"), "--val", str(sample / "val" / "*.root"))
        machine = ("--out", str(run), "--seed", str(number), "--threads", "1", "--resume")
        partt("train", training.recipe, *files, *machine, *settings, *teacher)


def taggers(network: str, runs: Path) -> list[Path]:
    """Return the runs of a network, one for each seed, or the name of a shipped tagger."""
    if network in SHIPPED:
        return [Path(network)]
    return [runs / run_name(network) / f"seed_{n + 1}" for n in range(TRAININGS[network].num_seeds)]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (jets, classes) and labels (jets,) of the test jets, in the order of the files."""

    scores: npt.NDArray[np.floating]
    labels: npt.NDArray[np.intp]

    @property
    def is_right(self) -> npt.NDArray[np.bool_]:
        """Whether the class with the highest score is the true one."""
        found: npt.NDArray[np.bool_] = self.scores.argmax(axis=1) == self.labels
        return found


def test(tagger: Path, sample: Path, out: Path) -> Scores:
    """Return the scores of a tagger, which `partt predict` writes, or has written."""
    from partt.data.files.tables import read_columns

    partt(
        "predict",
        "--tagger",
        str(tagger),
        str(sample / "test" / "*.root"),
        "--out",
        str(out),
        "--threads",
        "1",
    )
    scores, labels = [], []
    for path in sorted(out.glob("*.root")):
        columns = [f"{kind}_{name}" for kind in ("score", "label") for name in CLASSES]
        table = read_columns(str(path), columns)
        values = np.stack([np.asarray(table[name]) for name in columns], axis=1)
        scores.append(values[:, : len(CLASSES)])
        labels.append(values[:, len(CLASSES) :].argmax(axis=1))
    return Scores(np.concatenate(scores), np.concatenate(labels))


def qcd_passing(found: Scores) -> npt.NDArray[np.bool_]:
    """Return which QCD jets (jets, signals) pass the working points of the signals."""
    qcd = found.scores[found.labels == 0]
    passing = []
    for number, name in enumerate(CLASSES[1:], start=1):
        own = found.scores[found.labels == number]
        ratio, against = (jets[:, number] / (jets[:, number] + jets[:, 0]) for jets in (own, qcd))
        passing.append(against >= np.quantile(ratio, 1 - EFFICIENCIES.get(name, 0.5)))
    return np.stack(passing, axis=1)


def mean_rejection(passing: npt.NDArray[np.bool_]) -> float:
    """Return the geometric mean over signals of all QCD jets over those that pass."""
    return float(np.exp(np.log(len(passing) / np.maximum(passing.sum(axis=0), 1)).mean()))


def numbers(found: Scores) -> dict[str, float]:
    """Return accuracy and mean rejection with their standard errors, and the AUC."""
    from partt.training.objectives.classification import area_under_curve

    right, passing = found.is_right, qcd_passing(found)
    random = np.random.default_rng(1)
    replicas = [
        mean_rejection(passing[random.integers(len(passing), size=len(passing))]) for _ in range(NUM_REPLICAS)
    ]
    return {
        "accuracy": float(right.mean()),
        "accuracy_error": float(right.std() / math.sqrt(len(right))),
        "auc": float(area_under_curve(found.scores, found.labels) or math.nan),
        "mean_rejection": mean_rejection(passing),
        "mean_rejection_error": float(np.std(replicas)),
    }


def fingerprint(folder: Path) -> str:
    """Return a hash of the classes of jets and their numbers of particles, in the order of the files."""
    from partt.data.files.tables import read_columns

    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.root")):
        table = read_columns(str(path), [*(f"label_{name}" for name in CLASSES), "jet_nparticles"])
        for column in table.values():
            digest.update(np.asarray(column, dtype="<i4").tobytes())
    return digest.hexdigest()


def check_test_jets(folder: Path, results: dict[str, Any]) -> None:
    """Raise an error if test jets are not those of the networks tested before: differences are jet by jet."""
    found = fingerprint(folder)
    if results.setdefault("test_jets_sha256", found) != found:
        raise SystemExit(
            f"{folder}: these are not the jets that the networks of the JSON file were tested on, and no "
            "difference can be taken jet by jet; make them with large_sample.sh and the same versions, or "
            "test all networks again, without right_class/ and in another --json"
        )


def measure_accuracy(networks: Iterable[str], sample: Path, runs: Path, results: dict[str, Any]) -> None:
    """Test all seeds of the networks; keep which jets are right, for paired differences."""
    check_test_jets(sample / "test", results)
    for network in networks:
        found = []
        for tagger, right in zip(taggers(network, runs), right_files(network, runs), strict=True):
            scores = test(tagger, sample, runs / "scores" / right.stem)
            right.parent.mkdir(exist_ok=True)
            np.save(right, np.packbits(scores.is_right))
            found.append(numbers(scores))
        results.setdefault("networks", {}).setdefault(network, {})["seeds"] = found
        results["test_jets"] = len(scores.labels)
    results["differences"] = {**results.get("differences", {}), **differences(runs, results["test_jets"])}


def right_files(network: str, runs: Path) -> list[Path]:
    """Return where a network's test jets with the right class are kept, a file for each seed."""
    names = [tagger.name for tagger in taggers(network, runs)]
    return [HERE / "right_class" / f"{run_name(network)}_{name}.npy" for name in names]


def differences(runs: Path, num_jets: int) -> dict[str, dict[str, float]]:
    """Return differences of the mean accuracy over seeds: spread over seeds, and error of the test jets."""
    found = {}
    for one, other in PAIRS:
        files = [right_files(name, runs) for name in (one, other)]
        if not all(path.exists() for side in files for path in side):
            continue
        ours, theirs = (
            np.stack([np.unpackbits(np.load(path), count=num_jets) for path in side]).astype(float)
            for side in files
        )
        per_jet = ours.mean(axis=0) - theirs.mean(axis=0)
        spread = math.sqrt(
            sum(side.mean(axis=1).var(ddof=1) / len(side) for side in (ours, theirs) if len(side) > 1)
        )
        found[f"{one} - {other}"] = {
            "accuracy": float(per_jet.mean()),
            "error_of_test_jets": float(per_jet.std() / math.sqrt(num_jets)),
            "error_of_seeds": spread,
        }
    return found


# --- speed ----------------------------------------------------------------------------------------------


def speed_child(runs: Path, networks: Iterable[str]) -> None:
    """Print jets per second of partt's networks at batch 1 and 400, as JSON."""
    import torch

    from partt.model.cpu.allocator import keep_freed_memory
    from partt.tagger.loading import load_torch_tagger

    torch.set_num_threads(1)
    keep_freed_memory()
    jets = load_jets(NUM_JETS)
    single = [jets.slice(number, number + 1).inputs for number in range(100)]
    competitors = {}

    def work(network: Any, batches: list[Any]) -> Any:
        def run() -> None:
            with torch.inference_mode():
                for inputs in batches:
                    network(inputs)

        return run

    for name in networks:
        tagger = taggers(name, runs)[0]
        known = name in SHIPPED or tagger.exists()
        network = load_torch_tagger(tagger).network if known else new_network(name, jets)
        network.eval()
        competitors[f"{name}, batch {NUM_JETS}"] = (NUM_JETS, work(network, [jets.inputs]))
        competitors[f"{name}, batch 1"] = (len(single), work(network, single))
    print(json.dumps(take_turns(competitors, 0.0, 1)))


def new_network(name: str, jets: Any) -> Any:
    """Return a network with new weights: its speed is that of a trained one."""
    from partt.model.registry import build_network
    from partt.training.recipe import load_recipe

    model = load_recipe(TRAININGS[name].recipe).model
    return build_network(model.name, model.network_config(), jets.inputs.shape, {"classes": len(CLASSES)})


def measure_speed(networks: list[str], runs: Path, rounds: int, results: dict[str, Any]) -> None:
    """Measure all networks and weaver-core's ParT in turns, by CPU time of one thread."""
    rates: dict[str, list[float]] = {}
    command = [sys.executable, __file__, ".", str(runs), "--child", "--networks", *networks]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for _ in range(rounds):
        output = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        parts = [
            json.loads(output.splitlines()[-1]),
            *(model_child("inference", number, 1) for number in (0, 1)),
        ]
        for part in parts:
            for name, values in part.items():
                rates.setdefault(name, []).extend(values)
    medians = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    for name in networks:
        of_network = results.setdefault("networks", {}).setdefault(name, {})
        of_network["jets_per_second"] = {size: medians[f"{name}, batch {size}"] for size in (1, NUM_JETS)}
    others = {
        kind: {k: v for k, v in medians.items() if k.startswith(kind)} for kind in ("weaver", "onnxruntime")
    }
    results["weaver_part"] = {"torch": others["weaver"], "its ONNX export": others["onnxruntime"]}
    results["machine"] = {"processor": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}


# --- figure ---------------------------------------------------------------------------------------------


def published_accuracies() -> dict[str, float]:
    """Return the published accuracies on JetClass with 100 M jets, by our names."""
    text = (HERE.parent / "partt" / "evaluation" / "published" / "jetclass.csv").read_text()
    rows = {
        row["model"]: row["accuracy"]
        for row in csv.DictReader(text.splitlines())
        if row["training_jets"] == "100M"
    }
    return {name: float(rows[model]) for name, model in PUBLISHED.items() if rows.get(model)}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw accuracy and mean rejection of this benchmark, and published accuracies, against speed."""
    from matplotlib.figure import Figure

    from partt.pages.style import house_style

    networks = {name: found for name, found in results["networks"].items() if "jets_per_second" in found}
    titles = {
        "accuracy": ("accuracy", "20,000 training jets"),
        "mean_rejection": (r"mean QCD rejection $1/\varepsilon_B$", "20,000 training jets"),
        "published": ("accuracy", "published, 100 M training jets"),
    }
    with house_style():
        figure = Figure(figsize=(13.5, 5.2), dpi=140, layout="constrained")
        panels = figure.subplots(1, 3)
        labels: list[dict[str, tuple[float, float]]] = []
        for (metric, (ylabel, title)), axis in zip(titles.items(), panels, strict=True):
            published = results["published"] if metric == "published" else None
            labels.append(draw_points(axis, networks, metric, published))
            axis.set(xscale="log", xlabel="jets/s, one thread", xlim=SPEEDS, ylabel=ylabel, title=title)
            axis.set_xticks(TICKS, [f"{speed:,}" for speed in TICKS])
            for rates, style in WEAVER_LINES.items():
                best = max(results["weaver_part"][rates].values())
                axis.axvline(best, color="grey", linestyle=style, linewidth=1, zorder=0)
            if metric == "mean_rejection":
                axis.set_yscale("log")
                axis.set_yticks(REJECTIONS, [f"{rejection:,}" for rejection in REJECTIONS])
            axis.minorticks_off()
        figure.legend(handles=legend(), loc="outside lower center", ncols=5)
        figure.draw_without_rendering()  # places the panels
        for axis, named in zip(panels, labels, strict=True):
            write_labels(axis, named)
        figure.savefig(path)


def draw_points(
    axis: Any, networks: Mapping[str, Any], metric: str, published: Mapping[str, float] | None
) -> dict[str, tuple[float, float]]:
    """Draw the networks that have a metric; return name -> point to label."""
    named = {}
    for name, found in networks.items():
        fast, single = (found["jets_per_second"][str(size)] for size in (NUM_JETS, 1))
        if published is not None:
            mean, error = published.get(name), 0.0
        else:  # not all are trained yet
            mean, error = mean_and_error(found["seeds"], metric) if "seeds" in found else (None, 0.0)
        if mean is None:
            continue
        marker, colour = "D" if name in SHIPPED else "o", colour_of(name)
        axis.errorbar(fast, mean, error or None, fmt=marker, color=colour, markersize=6)
        if published is None:
            axis.plot([single, fast], [mean, mean], color=colour, linewidth=0.8)
            axis.plot(single, mean, marker, color=colour, fillstyle="none", markersize=6)
        named[name] = (fast, mean)
    return named


def colour_of(name: str) -> str:
    """Return the colour of a network: one for each family."""
    from partt.pages.style import colour

    families = ("part", "slim", "student", "jetclass")
    family = re.split("[_ -]", name)[0]
    return colour(families.index(family) if family in families else len(families))


def legend() -> list[Any]:
    """Return what markers and lines mean."""
    from matplotlib.lines import Line2D

    point: dict[str, Any] = {"color": "black", "linestyle": "none", "markersize": 6}
    return [
        Line2D([], [], marker="o", label=f"batches of {NUM_JETS}", **point),
        Line2D([], [], marker="o", fillstyle="none", label="jet by jet", **point),
        Line2D([], [], marker="D", label="trained on more jets", **point),
        *(
            Line2D([], [], color="grey", linestyle=style, label=f"weaver-core's ParT, {rates}")
            for rates, style in WEAVER_LINES.items()
        ),
    ]


def mean_and_error(seeds: list[dict[str, float]], metric: str) -> tuple[float, float]:
    """Return the mean over seeds, and its error: of the test jets, and the spread of several seeds."""
    values = [seed[metric] for seed in seeds]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.mean(values), math.hypot(seeds[0][f"{metric}_error"], spread)


def write_labels(axis: Any, labels: Mapping[str, tuple[float, float]]) -> None:
    """Write names beside points, each at the corner where it touches the fewest other names and points."""
    from matplotlib.patheffects import withStroke

    points = {name: axis.transData.transform(point) for name, point in labels.items()}
    taken = {name: (x - DOT, y - DOT, x + DOT, y + DOT) for name, (x, y) in points.items()}
    for name, (x, y) in sorted(points.items(), key=lambda item: -item[1][1]):
        boxes = {}
        for right, up in CORNERS:
            left = x + DOT if right else x - DOT - LETTER * len(name)
            bottom = y if up else y - LINE
            boxes[right, up] = (left, bottom, left + LETTER * len(name), bottom + LINE)
        others = [box for other, box in taken.items() if other != name]
        touched = {corner: sum(overlap(box, other) for other in others) for corner, box in boxes.items()}
        right, up = min(touched, key=lambda corner: touched[corner])
        taken[f"name of {name}"] = boxes[right, up]
        text = axis.annotate(
            name,
            labels[name],
            xytext=(6 if right else -6, 2 if up else -2),
            textcoords="offset points",
            ha="left" if right else "right",
            va="bottom" if up else "top",
            fontsize=10,
        )
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])  # lines may pass behind it


def overlap(one: Box, other: Box) -> bool:
    """Tell whether two boxes overlap."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def main() -> None:
    """Train, test, measure, draw."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("sample", type=Path, help="folder with seeds/, val/ and test/")
    parser.add_argument("runs", type=Path, help="folder for runs and scores")
    parser.add_argument(
        "--networks", nargs="+", default=[*TRAININGS, *SHIPPED], choices=[*TRAININGS, *SHIPPED]
    )
    parts = ("train", "test", "speed", "figure")
    parser.add_argument("--parts", nargs="+", default=list(parts), choices=parts)
    parser.add_argument("--rounds", type=int, default=3, help="of speed, two measurements each")
    parser.add_argument("--json", type=Path, default=HERE / "accuracy_per_second.json")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / "accuracy_per_second.png")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        speed_child(options.runs, options.networks)
        return
    if "train" in options.parts:
        for network in (name for name in options.networks if name in TRAININGS):
            train(network, options.sample, options.runs)
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    if "test" in options.parts:
        measure_accuracy(options.networks, options.sample, options.runs, results)
    if "speed" in options.parts:
        measure_speed(options.networks, options.runs, options.rounds, results)
    results["published"] = published_accuracies()
    results["settings"] = {
        name: {"recipe": one.recipe, "settings": [*COMMON, *one.settings], "teacher": one.teacher or None}
        for name, one in TRAININGS.items()
    }
    text = json.dumps(results, indent=1)
    options.json.write_text(text + "\n")
    if "figure" in options.parts:
        draw(json.loads(text), options.figure)


if __name__ == "__main__":
    main()
