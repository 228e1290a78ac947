r"""Fine-tuning from a JetClass-style tagger against training from scratch, on a small top-against-QCD set.

For several seeds, a few jets of two classes are drawn; the same network is trained on them twice with the
same settings, from new weights and from those of a tagger of ten classes, and both are tested on jets that
neither has seen. Half as many other jets choose the best epoch. Jets, and a tagger that trains in minutes:

  partt simulate --out train --jets 2000 --seed 101 --workers 2
  partt simulate --out val --jets 100 --seed 404 --workers 2
  partt simulate --out top --jets 3000 --classes Tbqq QCD --seed 303 --jets-per-file 1500 --workers 2
  partt train jetclass_pfn --train 'train/*.root' --val 'val/*.root' --out runs/pfn --threads 1 \
    --set batch_size=128 --set optimizer.lr=2e-3 --set epochs=40 --set jets_per_epoch=20000
  python benchmarks/fine_tuning.py runs/pfn/best.safetensors top

usage: python benchmarks/fine_tuning.py TAGGER FOLDER [--num-jets N] [--seeds N] [--lr LR] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score, roc_curve

from partt.cli.main import main as partt
from partt.data.files.lists import InputFile
from partt.data.files.tables import inspect_file, read_columns, write_table
from partt.data.jagged import concatenate, take
from partt.data.reading.batches import ordered_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source
from partt.tagger.loading import load_torch_tagger

CLASSES = {"QCD": "ZJetsToNuNu", "Tbqq": "TTBar"}  # class -> how its files are called
EPOCHS = 10
METRICS = ("accuracy", "AUC", "rejection at 50 %")


def write_configs(tagger_file: Path, lr: float, folder: Path) -> None:
    """Write a data config of two classes and a recipe for the tagger's network."""
    tagger = load_torch_tagger(tagger_file)
    config = yaml.safe_load(tagger.data_config.to_yaml())
    config["labels"]["value"] = [f"label_{name}" for name in CLASSES]
    (folder / "two_classes.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    recipe = {
        "data_config": "two_classes.yaml",
        "model": {"name": tagger.network_name, "settings": tagger.network.config.model_dump(mode="json")},
        "optimizer": {"name": "adamw", "lr": lr, "weight_decay": 0.01},
        "schedule": {"name": "one_cycle"},
        "batch_size": 64,
        "epochs": EPOCHS,
        "clip_norm": 1.0,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))


def draw_jets(jets: Path, folder: Path, num_jets: int, seed: int) -> None:
    """Split the jets of each class at random between train.root, val.root and test.root."""
    random = np.random.default_rng(seed)
    parts: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    for name, prefix in CLASSES.items():
        files = [inspect_file(str(path)) for path in sorted(jets.glob(f"{prefix}_*.root"))]
        if not files:
            sys.exit(f"{jets} has no jets of the class {name}: {prefix}_*.root")
        branches = [branch for branch in files[0].branches if branch != "npart"]
        tables = [read_columns(file.url, branches) for file in files]
        table = {branch: concatenate([one[branch] for one in tables]) for branch in branches}
        order = random.permutation(len(table["jet_pt"]))
        for part, chosen in zip(parts, np.split(order, [num_jets, num_jets + num_jets // 2]), strict=True):
            parts[part].append({branch: take(column, chosen) for branch, column in table.items()})
    for part, tables in parts.items():
        write_table(folder / f"{part}.root", tables)


def train(folder: Path, out: Path, seed: int, *options: str) -> Path:
    """Run `partt train`; return the tagger."""
    files = ["--train", str(folder / "train.root"), "--val", str(folder / "val.root"), "--seed", str(seed)]
    machine = ["--out", str(out), "--threads", "1", "--workers", "0"]
    if partt(["train", str(folder / "recipe.yaml"), *files, *machine, *options]):
        sys.exit("training failed")
    return out / "best.safetensors"


def test(tagger_file: Path, jets: Path) -> dict[str, float]:
    """Return accuracy, AUC and background rejection (1 / efficiency) at half of the tops."""
    tagger = load_torch_tagger(tagger_file)
    source = open_source([InputFile("", str(jets))], tagger.data_config)
    scores, labels = [], []
    with torch.inference_mode():
        for batch in ordered_batches(source, build_index(source), batch_size=500):
            scores.append(tagger.network(batch.inputs)["classes"].softmax(dim=1)[:, 1].numpy())
            labels.append(np.asarray(batch.labels))
    score, label = np.concatenate(scores), np.concatenate(labels)
    background, signal, _ = roc_curve(label, score)
    at_half = max(np.interp(0.5, signal, background), 1 / (label == 0).sum())
    return {
        "accuracy": float(((score > 0.5) == label).mean()),
        "AUC": float(roc_auc_score(label, score)),
        "rejection at 50 %": float(1 / at_half),
    }


def main() -> None:
    """Train, tune, test, print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("tagger", type=Path, help="of ten classes; must not have seen the jets")
    parser.add_argument("jets", type=Path, help="folder with jets of the classes QCD and Tbqq")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--num-jets", type=int, default=500, help="of each class (default: 500)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of both (default: 1e-3)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[dict[str, float]]] = {"from scratch": [], "fine-tuned": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_configs(options.tagger, options.lr, folder)
        for seed in range(options.seeds):
            draw_jets(options.jets, folder, options.num_jets, seed)
            for kind, more in (("from scratch", []), ("fine-tuned", ["--init-from", str(options.tagger)])):
                tagger = train(folder, folder / f"{kind}-{seed}", seed, *more)
                results[kind].append(test(tagger, folder / "test.root"))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    _print_table(results, options.num_jets)


def _print_table(results: dict[str, list[dict[str, float]]], num_jets: int) -> None:
    num_seeds = len(next(iter(results.values())))
    title = f"top against QCD, {num_jets} + {num_jets} jets: mean and spread of {num_seeds} draws"
    table = Table("", title=title)
    for metric in METRICS:
        table.add_column(metric, justify="right")
    for kind, runs in results.items():
        cells = []
        for metric, digits in zip(METRICS, (4, 4, 0), strict=True):
            values = np.array([run[metric] for run in runs])
            cells.append(f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}")
        table.add_row(kind, *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
