r"""What pre-training without labels gives where few jets have labels: accuracy and AUC against their number.

A small Particle Transformer (the recipe masked_particles) learns from 100 000 jets of ten classes without
labels. Then N of these jets get labels, of five classes, and the same network is trained on them: from new
weights, from the pre-trained ones (all of them, or a linear head only), and from those of a training with all
labels of the other five classes. Every number of labels is drawn three times. Once more for a task that
pre-training never saw: without top jets, then top against QCD. Tests are on other jets.

`--only longer` trains from new weights once more, with three times the passes: are labels missing, or steps?

Jets are those of benchmarks/large_sample.sh (FOLDER/train, val and test). Every training ends with a row in
few_labels.json; if interrupted, rerun the same command: it resumes.

usage: python benchmarks/few_labels.py --sample FOLDER [--work FOLDER] [--only PART ...] [--test-jets N]
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from sklearn.linear_model import LogisticRegression

import partt
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import expand_files
from partt.data.files.tables import read_columns, write_table
from partt.data.jagged import concatenate, take
from partt.data.reading.batches import ordered_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source
from partt.data.variables import file_branches, names_for
from partt.jet_inputs import JetInputs
from partt.model.registry import build_network
from partt.pages.style import MARKERS, colour, house_style
from partt.tagger.loading import load_torch_tagger
from partt.training.objectives.classification import area_under_curve
from partt.training.objectives.jet_observables import observables
from partt.training.objectives.linear_probe import probe_accuracy
from partt.training.optimizers import BATCH_NORMS
from partt.training.recipe import MaskedParticlesChoice, Recipe, load_recipe

HERE = Path(__file__).parent
FILES = {"QCD": "ZJetsToNuNu", "Hbb": "HToBB", "Hcc": "HToCC", "Hgg": "HToGG", "H4q": "HToWW4Q",
         "Hqql": "HToWW2Q1L", "Zqq": "ZToQQ", "Wqq": "WToQQ", "Tbqq": "TTBar", "Tbl": "TTBarLep"}  # fmt: skip
FIVE, OTHER_FIVE = ("QCD", "Hbb", "H4q", "Wqq", "Tbqq"), ("Hcc", "Hgg", "Hqql", "Zqq", "Tbl")
TOP = ("QCD", "Tbqq")
WITHOUT_TOP = tuple(name for name in FILES if not name.startswith("T"))
FILES_OF_CLASS = 5  # of 2000 jets: 100 000 of ten classes
EPOCHS_WITHOUT_LABELS, EPOCHS_WITHOUT_TOP, EPOCHS_OTHER_CLASSES, EPOCHS_OF_OBJECTIVES = 5, 2, 2, 3
DRAWS = 3
# labelled jets -> epochs and batch size, the same for all trainings but the longer ones
LABELLED = {300: (30, 32), 1000: (15, 64), 3000: (8, 64), 10_000: (3, 64)}
LABELLED_TOP = (300,)
OBJECTIVES: dict[str, dict[str, Any]] = {  # with a fifth of the jets
    "regression": {"objective": "regression"},
    "flow matching": {"objective": "flow_matching"},
    "regression, particles only": {"objective": "regression", "observables_weight": 0.0},
    "flow matching, particles only": {"objective": "flow_matching", "observables_weight": 0.0},
}
PARTS = ("pretrain", "probe", "curve", "unseen", "longer", "objectives")
DEFAULT_PARTS = PARTS[:4]
SCRATCH, FROZEN, TUNED, SUPERVISED = "from scratch", "frozen", "fine-tuned", "from other classes"
NEW_WEIGHTS, OBSERVABLES = "new weights", "observables of jets"
LONGER, LONGER_BY = "from scratch, three times the passes", 3


class Rows:
    """The rows of the JSON file, each written as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []

    def has(self, **key: Any) -> bool:
        """Tell whether there is a row with these values."""
        return any(row.items() >= key.items() for row in self.rows)

    def add(self, **row: Any) -> None:
        """Add a row, and write all of them."""
        print(row, flush=True)
        self.rows.append(row)
        self.path.write_text(json.dumps({"rows": self.rows}, indent=1) + "\n")


class Bench:
    """Sample, work folder and rows of a benchmark."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.sample, self.work, self.threads = options.sample, options.work, options.threads
        self.num_test = options.test_jets
        self.rows = Rows(options.json)
        self.work.mkdir(parents=True, exist_ok=True)

    def files(self, part: str, classes: Sequence[str], most: int | None = None) -> list[str]:
        """Return the files of some classes, the first `most` of each."""
        found = []
        for name in classes:
            paths = sorted((self.sample / part).glob(f"{FILES[name]}_[0-9]*.root"))[:most]
            if len(paths) < (most or 1):
                raise SystemExit(f"{self.sample / part} has {len(paths)} files of {name}: simulate more")
            found += [f"{name}:{path}" for path in paths]
        return found

    def config(self, classes: Sequence[str]) -> Path:
        """Return the data config of some classes."""
        path: Path = self.work / f"{'_'.join(classes)}.yaml"
        data = yaml.safe_load(load_data_config("jetclass_full").to_yaml())
        data["labels"]["value"] = [f"label_{name}" for name in classes]
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return path

    def train(
        self, recipe: Recipe, train: Sequence[str], validation: Sequence[str], out: Path, **how: Any
    ) -> Path:
        """Train, or resume; return the run folder."""
        machine = {"device": "cpu", "num_threads": self.threads, "num_workers": 0}
        if not (out / "curves.png").exists():  # the last file of a run
            partt.train(recipe, train, validation=validation, out=out, resume=True, **machine, **how)
        return out

    def pretrain(self, name: str, classes: Sequence[str], files: int, epochs: int, **choice: Any) -> Path:
        """Train without labels on some files of each class; labels of validation jets are for the probe."""
        recipe = load_recipe("masked_particles", [f"epochs={epochs}", "checkpoint_minutes=3"])
        choices = (recipe.masked_particles or MaskedParticlesChoice()).replace(**choice)
        recipe = recipe.replace(masked_particles=choices)
        started = time.process_time()
        run = self.train(
            recipe,
            self.files("train", classes, files),
            self.files("val", classes),
            self.work / name.replace(", ", "-").replace(" ", "_"),
            seed=1,
        )
        if not self.rows.has(part="pretrain", name=name):
            definition = json.loads((run / "run.json").read_text())
            lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
            epochs_done = [line for line in lines if line["kind"] == "epoch"]
            self.rows.add(
                part="pretrain",
                name=name,
                objective=choices.objective,
                num_jets=sum(facts[3] for facts in definition["train"]["files"].values()),
                epochs=epochs,
                cpu_seconds=round(time.process_time() - started),
                validation_loss=[round(line["validation_loss"], 5) for line in epochs_done],
                probe_accuracy=[line["validation_probe_accuracy"] for line in epochs_done],
            )
        return run

    def draw(self, classes: Sequence[str], num_jets: int, draw: int) -> Path:
        """Write N jets, the same number of each class; return their file."""
        path: Path = self.work / "draws" / f"{'_'.join(classes)}-{num_jets}-{draw}.root"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            random = np.random.default_rng([num_jets, draw])
            tables = []
            for name in classes:
                table = self.jets(name)
                chosen = random.permutation(len(table["jet_pt"]))[: num_jets // len(classes)]
                tables.append({branch: take(column, np.sort(chosen)) for branch, column in table.items()})
            write_table(path, tables)
        return path

    @cache  # noqa: B019 - one benchmark a process
    def jets(self, name: str) -> dict[str, Any]:
        """Return the branches of all jets of a class that pre-training has seen."""
        config = load_data_config("jetclass_full")
        branches = sorted(file_branches(config, names_for(config, "train")))
        paths = [file.partition(":")[2] for file in self.files("train", [name], FILES_OF_CLASS)]
        tables = [read_columns(path, branches) for path in paths]
        return {branch: concatenate([table[branch] for table in tables]) for branch in branches}

    def few(self, classes: Sequence[str], num_jets: int, method: str) -> Recipe:
        """Return the recipe for so many jets with labels."""
        epochs, batch_size = LABELLED[num_jets]
        return Recipe.model_validate(
            {
                "data_config": str(self.config(classes)),
                "model": {"name": "part_s"},
                "optimizer": {"name": "adamw", "lr": 3e-3, "weight_decay": 0.01},
                "schedule": {"name": "one_cycle"},
                "batch_size": batch_size,
                "epochs": epochs * (LONGER_BY if method == LONGER else 1),
                "clip_norm": 1.0,
                "validation_jets_per_epoch": 1000,
            }
        )

    def test(self, tagger_folder: Path, classes: Sequence[str]) -> dict[str, float]:
        """Return accuracy and AUC of a tagger."""
        tagger = load_torch_tagger(tagger_folder)
        outputs, labels = embedded(
            tagger.network.embed, self.config(classes), self.files("test", classes), self.num_test
        )
        with torch.inference_mode():
            scores = tagger.network.outputs(torch.from_numpy(outputs))["classes"].softmax(dim=1).numpy()
        return quality(scores, labels)

    def frozen(
        self, tagger_folder: Path, classes: Sequence[str], num_jets: int, draw: int
    ) -> dict[str, float]:
        """Return accuracy and AUC of a linear head on embeddings; validation jets choose its decay."""
        config, labelled = self.config(classes), [str(self.draw(classes, num_jets, draw))]
        network = load_torch_tagger(tagger_folder).network
        x, y = embedded(network.embed, config, labelled)
        mean, width = x.mean(axis=0), x.std(axis=0) + 1e-6
        validation, of_validation = self.embeddings(tagger_folder, classes, "val", 1000)
        test, of_test = self.embeddings(tagger_folder, classes, "test", self.num_test)
        heads = [LogisticRegression(C=c, max_iter=500).fit((x - mean) / width, y) for c in (0.01, 0.1, 1.0)]
        best = max(heads, key=lambda head: head.score((validation - mean) / width, of_validation))
        return quality(best.predict_proba((test - mean) / width), of_test)

    @cache  # noqa: B019 - one benchmark a process
    def embeddings(
        self, tagger_folder: Path, classes: Sequence[str], part: str, num_jets: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return embeddings and labels of jets of a part of the sample."""
        network = load_torch_tagger(tagger_folder).network
        return embedded(network.embed, self.config(classes), self.files(part, classes), num_jets)

    def compare(
        self,
        part: str,
        classes: Sequence[str],
        sizes: Sequence[int],
        starts: dict[str, Path | None],
        frozen: Path | None = None,
    ) -> None:
        """Train with labels, from different starts, for all numbers of labels and draws."""
        for num_jets in sizes:
            for draw in range(DRAWS):
                key = {"part": part, "labels": num_jets, "draw": draw}
                if frozen is not None and not self.rows.has(**key, method=FROZEN):
                    self.rows.add(**key, method=FROZEN, **self.frozen(frozen, classes, num_jets, draw))
                for method, start in starts.items():
                    if self.rows.has(**key, method=method):
                        continue
                    started = time.process_time()
                    out = self.work / f"{part}-{num_jets}-{draw}-{method.replace(',', '').replace(' ', '_')}"
                    labelled = [str(self.draw(classes, num_jets, draw))]
                    validation = self.files("val", classes)
                    recipe = self.few(classes, num_jets, method)
                    self.train(recipe, labelled, validation, out, seed=draw + 1, init_from=start)
                    found = self.test(out, classes)
                    seconds = round(time.process_time() - started)
                    self.rows.add(**key, method=method, **found, cpu_seconds=seconds)


def embedded(
    embed: Callable[[JetInputs], torch.Tensor],
    config: Path,
    files: Sequence[str],
    num_jets: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the embeddings (N, D) and labels (N,) of jets, spread over the files."""
    source = open_source(expand_files(list(files)), load_data_config(str(config)))
    found, labels = [], []
    with torch.inference_mode():
        for batch in ordered_batches(source, build_index(source), batch_size=250, max_jets=num_jets):
            found.append(embed(batch.inputs).numpy())
            labels.append(np.asarray(batch.labels))
    return np.concatenate(found), np.concatenate(labels)


def quality(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return accuracy and AUC, the mean over pairs of classes."""
    area = area_under_curve(scores, labels) or math.nan
    return {"accuracy": round(float((scores.argmax(axis=1) == labels).mean()), 5), "auc": round(area, 5)}


def probe(bench: Bench, name: str, run: Path) -> None:
    """Compare the embeddings of a pre-trained network with simpler ones.

    These are the embeddings of a new network of the same shape, whose BatchNorms have the statistics of jets,
    and the observables of jets that pre-training learns beside particles.
    """
    config = bench.config(tuple(FILES))
    trained = load_torch_tagger(run)
    torch.manual_seed(1)
    shape = trained.data_config.input_shape
    new = build_network(trained.network.name, trained.network.config, shape, {}).train()
    for module in new.modules():
        if isinstance(module, BATCH_NORMS):
            module.momentum = 0.3  # some twenty batches suffice
    embedded(new.embed, config, bench.files("val", tuple(FILES)))
    kinds = {
        NEW_WEIGHTS: new.eval().embed,
        OBSERVABLES: lambda inputs: observables(inputs.main),
        name: trained.network.embed,
    }
    for kind, embed in kinds.items():
        if not bench.rows.has(part="probe", name=kind):
            found, labels = embedded(embed, config, bench.files("test", tuple(FILES)), bench.num_test)
            accuracy = probe_accuracy(found, labels)
            bench.rows.add(part="probe", name=kind, accuracy=accuracy, num_jets=len(labels))


def run_parts(bench: Bench, parts: Sequence[str]) -> None:
    """Run what is missing of some parts of the benchmark."""
    if {"pretrain", "probe", "curve"} & set(parts):
        run = bench.pretrain("all_classes", tuple(FILES), FILES_OF_CLASS, EPOCHS_WITHOUT_LABELS)
    if "probe" in parts:
        probe(bench, "all_classes", run)
    if "curve" in parts:
        recipe = load_recipe("jetclass_part_s").replace(data_config=str(bench.config(OTHER_FIVE)))
        recipe = recipe.replace(
            epochs=EPOCHS_OTHER_CLASSES,
            jets_per_epoch=None,
            batch_size=128,
            checkpoint_minutes=3.0,
            optimizer=recipe.optimizer.replace(lr=3e-3, weight_decay=0.01),
            schedule=recipe.schedule.replace(rise_fraction=0.3, final_factor=0.01),
        )
        train, validation = bench.files("train", OTHER_FIVE, FILES_OF_CLASS), bench.files("val", OTHER_FIVE)
        other = bench.train(recipe, train, validation, bench.work / "other_classes", seed=1)
        starts = {SCRATCH: None, TUNED: run, SUPERVISED: other}
        bench.compare("curve", FIVE, tuple(LABELLED), starts, run)
    if "longer" in parts:
        bench.compare("curve", FIVE, tuple(LABELLED), {LONGER: None})
    if "unseen" in parts:
        run = bench.pretrain("without_top", WITHOUT_TOP, FILES_OF_CLASS, EPOCHS_WITHOUT_TOP)
        bench.compare("unseen", TOP, LABELLED_TOP, {SCRATCH: None, TUNED: run}, run)
    if "objectives" in parts:
        for name, choice in OBJECTIVES.items():
            run = bench.pretrain(name, tuple(FILES), 1, EPOCHS_OF_OBJECTIVES, **choice)
            probe(bench, name, run)


def summary(rows: Sequence[dict[str, Any]], part: str) -> dict[str, dict[int, dict[str, np.ndarray]]]:
    """Return method -> number of labels -> metric -> values of the draws."""
    found: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    for method in (SCRATCH, LONGER, FROZEN, TUNED, SUPERVISED):
        for num_jets in LABELLED:
            same = [
                row
                for row in rows
                if (row["part"], row.get("method"), row.get("labels")) == (part, method, num_jets)
            ]
            if same:
                values = {name: np.array([row[name] for row in same]) for name in ("accuracy", "auc")}
                found.setdefault(method, {})[num_jets] = values
    return found


def print_tables(rows: Sequence[dict[str, Any]]) -> None:
    """Print the tables of the docs: mean ± standard deviation of the draws."""
    for part in ("curve", "unseen"):
        found = summary(rows, part)
        for metric in ("accuracy", "auc"):
            sizes = sorted({num_jets for by_size in found.values() for num_jets in by_size})
            print(f"\n| {part}, {metric} | " + " | ".join(f"{size:,} labels" for size in sizes) + " |")
            print("|---" * (len(sizes) + 1) + "|")
            for method, by_size in found.items():
                cells = []
                for size in sizes:
                    values = by_size[size][metric] if size in by_size else np.array([])
                    spread = values.std(ddof=1) if len(values) > 1 else np.nan
                    cells.append(f"{values.mean():.4f} ± {spread:.4f}" if len(values) else "")
                print(f"| {method} | " + " | ".join(cells) + " |")


def draw_figure(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw accuracy and AUC against the number of labels."""
    found = summary(rows, "curve")
    with house_style():
        figure = Figure(figsize=(10, 4.6), dpi=120, layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, metric, title in zip(panels, ("accuracy", "auc"), ("accuracy", "AUC"), strict=True):
            for number, (method, by_size) in enumerate(found.items()):
                sizes = sorted(by_size)
                values = [by_size[size][metric] for size in sizes]
                means = [draws.mean() for draws in values]
                spreads = [draws.std(ddof=1) if len(draws) > 1 else 0 for draws in values]
                style = {"marker": MARKERS[number], "color": colour(number), "label": method}
                panel.errorbar(sizes, means, spreads, markersize=5, capsize=3, **style)
            panel.set(xscale="log", xlabel="labelled jets", ylabel=title)
            panel.set_title("five classes; bars: spread of the draws")
            panel.set_xticks(list(LABELLED), [f"{size:,}" for size in LABELLED])
            panel.xaxis.set_minor_locator(NullLocator())
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        figure.savefig(path)


def main() -> None:
    """Run what is missing, print the tables, draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=Path, required=True, help="folder of benchmarks/large_sample.sh")
    parser.add_argument("--work", type=Path, help="folder for trainings (default: SAMPLE/few_labels)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(DEFAULT_PARTS), metavar="PART",
                        help=f"of {', '.join(PARTS)} (default: all but the last two)")  # fmt: skip
    parser.add_argument("--test-jets", type=int, default=5000, help="(default: 5000)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=HERE / "few_labels.json")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs/how-to/few_labels.png")
    options = parser.parse_args()
    options.work = options.work or options.sample / "few_labels"
    torch.set_num_threads(options.threads)
    bench = Bench(options)
    run_parts(bench, options.only)
    print_tables(bench.rows.rows)
    if any(row["part"] == "curve" for row in bench.rows.rows):
        draw_figure(bench.rows.rows, options.figure)


if __name__ == "__main__":
    main()
