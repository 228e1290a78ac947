"""Fine-tuning from a JetClass-style tagger against training from scratch, on a small top-against-QCD set.

A small Particle Transformer is trained on ten classes of simulated jets. Then, for several seeds, 500 + 500
jets of two classes from another simulation are drawn; the same recipe is trained on them twice, from new
weights and from those of the tagger, and both are tested on jets that neither has seen. 250 + 250 other jets
choose the best epoch. Some ten minutes on one core. The jets:

  partt simulate --out train --jets 2000 --seed 101 --jobs 2
  partt simulate --out top --jets 3000 --classes Tbqq QCD --seed 303 --jobs 2

usage: python benchmarks/fine_tuning.py train top [--seeds N] [--jets N] [--json FILE]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml
from rich.console import Console
from rich.table import Table
from sklearn.metrics import roc_auc_score, roc_curve

from partt.cli.main import main as partt
from partt.config import shipped_file
from partt.data.dataset import ordered_batches
from partt.data.file_lists import InputFile
from partt.data.jagged import concatenate, take
from partt.data.jet_source import build_index, open_source
from partt.data.root_files import inspect_file, read_columns, write_tree
from partt.tagger_file import load_tagger

CLASSES = ("QCD", "Tbqq")
VALIDATION_JETS = 250  # of each class
RECIPE = {
    "data_config": "jetclass_full",
    "model": {"name": "part_xs"},
    "optimizer": {"name": "adamw", "lr": 2e-3, "weight_decay": 0.01},
    "schedule": {"name": "one_cycle"},
    "batch_size": 64,
    "epochs": 6,
    "clip_norm": 1.0,
}
TUNING_EPOCHS = 15
METRICS = ("accuracy", "AUC", "rejection at 50 %")


def write_configs(folder: Path) -> None:
    """Write the recipes, and a data config of two classes."""
    config = yaml.safe_load(shipped_file("data_configs", "jetclass_full").read_text())
    config["labels"]["value"] = [f"label_{name}" for name in CLASSES]
    (folder / "top.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "ten_classes.yaml").write_text(yaml.safe_dump(RECIPE))
    two = {**RECIPE, "data_config": "top.yaml", "epochs": TUNING_EPOCHS}
    (folder / "two_classes.yaml").write_text(yaml.safe_dump(two))


def draw_jets(jets: Path, folder: Path, num_jets: int, seed: int) -> None:
    """Share the jets of each class out between train.root, val.root and test.root, by chance."""
    random = np.random.default_rng(seed)
    parts: dict[str, list[dict]] = {"train": [], "val": [], "test": []}
    for name, prefix in zip(CLASSES, ("ZJetsToNuNu", "TTBar"), strict=True):
        files = [inspect_file(str(path)) for path in sorted(jets.glob(f"{prefix}_*.root"))]
        branches = [branch for branch in files[0].branches if not branch.startswith("npart")] if files else []
        tables = [read_columns(file.url, branches) for file in files]
        if not tables:
            sys.exit(f"{jets} has no jets of the class {name}: {prefix}_*.root")
        table = {branch: concatenate([one[branch] for one in tables]) for branch in branches}
        order = random.permutation(sum(file.num_entries for file in files))
        edges = [num_jets, num_jets + VALIDATION_JETS]
        for part, chosen in zip(parts, np.split(order, edges), strict=True):
            parts[part].append({branch: take(column, chosen) for branch, column in table.items()})
    for part, tables in parts.items():
        write_tree(folder / f"{part}.root", tables)


def train(recipe: Path, out: Path, *options: str) -> Path:
    """Run `partt train`; return the tagger."""
    if partt(["train", str(recipe), "--out", str(out), "--threads", "1", "--workers", "0", *options]):
        sys.exit("training failed")
    return out / "best.safetensors"


def test(tagger_file: Path, jets: Path) -> dict[str, float]:
    """Return accuracy, AUC and background rejection (1 / efficiency) at half of the tops."""
    tagger = load_tagger(tagger_file)
    source = open_source([InputFile("", str(jets))], tagger.data_config, "train")
    scores, labels = [], []
    with torch.inference_mode():
        for batch in ordered_batches(source, build_index(source), batch_size=500):
            scores.append(tagger.logits(batch).softmax(dim=1)[:, 1].numpy())
            labels.append(batch.labels.numpy())
    score, label = np.concatenate(scores), np.concatenate(labels)
    background, signal, _ = roc_curve(label, score)
    return {
        "accuracy": float(((score > 0.5) == label).mean()),
        "AUC": float(roc_auc_score(label, score)),
        "rejection at 50 %": float(1 / np.interp(0.5, signal, background).clip(1 / (label == 0).sum())),
    }


def main() -> None:
    """Train, tune, test, print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("jetclass", type=Path, metavar="train")
    parser.add_argument("top", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jets", type=int, default=500, help="of each class, to train on (default: 500)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, list[dict[str, float]]] = {"from scratch": [], "fine-tuned": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_configs(folder)
        files = str(options.jetclass / "*.root")
        start = train(folder / "ten_classes.yaml", folder / "ten", "--train", files, "--val-fraction", "0.1")
        for seed in range(options.seeds):
            draw_jets(options.top, folder, options.jets, seed)
            jets = ["--train", str(folder / "train.root"), "--val", str(folder / "val.root")]
            for kind, more in (("from scratch", []), ("fine-tuned", ["--init-from", str(start)])):
                out = folder / f"{kind}-{seed}"
                tagger = train(folder / "two_classes.yaml", out, *jets, "--seed", str(seed), *more)
                results[kind].append(test(tagger, folder / "test.root"))
                print(kind, seed, results[kind][-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    _print_table(results, options.jets)


def _print_table(results: dict[str, list[dict[str, float]]], num_jets: int) -> None:
    num_seeds = len(next(iter(results.values())))
    table = Table(
        "", title=f"top against QCD, {num_jets} + {num_jets} jets: mean and spread of {num_seeds} draws"
    )
    for metric in METRICS:
        table.add_column(metric, justify="right")
    for kind, runs in results.items():
        values = [np.array([run[metric] for run in runs]) for metric in METRICS]
        digits = (4, 4, 0)
        cells = [f"{v.mean():.{d}f} ± {v.std():.{d}f}" for v, d in zip(values, digits, strict=True)]
        table.add_row(kind, *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
