"""Put a trained tagger into the package, and write its model card from what was measured.

    python benchmarks/tagger_card.py NAME --run RUN_FOLDER --report REPORT_FOLDER

writes partt/tagger/shipped/NAME.safetensors and NAME.json, docs/taggers/NAME.md and figures beside it.
The data must come from `partt simulate`: seeds and settings are read from simulation.json beside the files.
"""

import argparse
import json
import math
import shutil
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import jinja2
import numpy as np

import partt
from partt.conversion.jetclass_npz import open_jetclass_npz
from partt.data.config.data_config import branches_to_read
from partt.data.files.tables import read_columns
from partt.data.jagged import Jagged, Table, num_jets, to_awkward
from partt.evaluation.table_formats import plain_text
from partt.jobs.metrics_file import METRICS_FILE, read_metrics
from partt.pages.number_text import Cell, cell_text
from partt.tagger.loading import load_torch_tagger
from partt.tagger.shipped import Facts, Measured, Purpose
from partt.tagger.tagger import Tagger

ROOT = Path(__file__).parents[1]
REAL_JETS = ROOT.parent / "shared" / "reference" / "jetclass_500_real_jets.npz"
TEMPLATE = jinja2.Environment(  # noqa: S701 - Markdown
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
).get_template("tagger_card.md.j2")
SAMPLE = ROOT / "partt" / "sample"
SHIPPED = ROOT / "partt" / "tagger" / "shipped"
FIGURES = ("training", "roc", "confusion", "calibration")
BLIND_JETS = 1000  # of each class, for the comparison with real jets


@dataclass(frozen=True)
class JetSet:
    """Files of `partt simulate` that were used for one purpose."""

    files: tuple[Path, ...]
    num_jets: int
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]  # of the simulation, but the seed


def jet_set(files: Iterable[str]) -> JetSet:
    """Look up how files were simulated."""
    paths = tuple(Path(file) for file in files)
    folders = sorted({path.parent for path in paths})
    manifests = {folder: json.loads((folder / "simulation.json").read_text()) for folder in folders}
    seeds = tuple(manifest["settings"].pop("--seed") for manifest in manifests.values())
    settings = [manifest["settings"] for manifest in manifests.values()]
    if any(one != settings[0] for one in settings):
        raise SystemExit(f"simulated with different settings: {', '.join(map(str, folders))}")
    num_jets = sum(manifests[path.parent]["files"][path.name]["jets"] for path in paths)
    return JetSet(paths, num_jets, seeds, settings[0])


def check_seeds(sets: Mapping[Purpose, JetSet]) -> None:
    """Refuse jets that serve two purposes, or that are those of the bundled sample."""
    sample = json.loads((SAMPLE / "simulation.json").read_text())["settings"]["--seed"]
    seeds = [sample, *(seed for one in sets.values() for seed in one.seeds)]
    if len(set(seeds)) < len(seeds):
        raise SystemExit(
            f"a seed was used twice, so some jets too: {seeds} (the first is that of the sample)"
        )


# --- real jets ------------------------------------------------------------------------------------------


def blind_accuracy(
    tagger: Tagger, tables: Iterable[Table], needed: Iterable[str], absent: Container[str]
) -> Cell:
    """Return the accuracy with the needed branches that are `absent` set to zero."""
    probabilities, labels = [], []
    for table in tables:
        momentum = table["part_px"]
        assert isinstance(momentum, Jagged)  # noqa: S101 - for the types
        zeros = Jagged(np.zeros(len(momentum.contents), np.float32), momentum.offsets)
        columns = {name: zeros if name in absent else table[name] for name in needed}
        scores = tagger(ak.Array({name: to_awkward(column) for name, column in columns.items()}))
        probabilities.append(np.stack([ak.to_numpy(scores[name]) for name in tagger.class_names], axis=1))
        one_hot = np.stack([np.asarray(table[f"label_{name}"]) for name in tagger.class_names], axis=1)
        labels.append(one_hot.argmax(axis=1))
    given = partt.scores_from_arrays(
        tagger.class_names, np.concatenate(probabilities), np.concatenate(labels)
    )
    cell = partt.evaluate(given).table.rows[0].cells[0]
    if cell is None:
        raise SystemExit("the jets have no accuracy")
    return cell


@dataclass(frozen=True)
class RealJets:
    """How the network does on real and on simulated jets, with what the real ones have."""

    lacking: tuple[str, ...]  # features that the real jets do not have
    num_real: int
    num_simulated: int
    theirs: str  # accuracy of the real ones
    ours: str
    pull: float  # the difference in standard errors


def compare_with_real_jets(tagger: Tagger, test: JetSet) -> RealJets:
    """Blind the network for what the real jets lack, and let it judge both."""
    with open_jetclass_npz(REAL_JETS) as dataset:
        real = list(dataset.tables)
    config = tagger.data_config
    features = [variable.name for variable in config.particles.variables]
    needed = branches_to_read(config, config.input_names)
    absent = sorted(needed - set(real[0]))
    wanted = [*sorted(needed), *(f"label_{name}" for name in tagger.class_names)]
    files = [path for path in test.files if path.parent == test.files[0].parent]
    simulated = [read_columns(str(path), wanted, 0, BLIND_JETS) for path in files]
    ours, theirs = (blind_accuracy(tagger, tables, needed, absent) for tables in (simulated, real))
    return RealJets(
        lacking=tuple(name for name in features if branches_to_read(config, [name]) & set(absent)),
        num_real=sum(map(num_jets, real)),
        num_simulated=sum(map(num_jets, simulated)),
        theirs=text_of(theirs),
        ours=text_of(ours),
        pull=(theirs.value - ours.value) / math.hypot(error(theirs), error(ours)),
    )


# --- the card -------------------------------------------------------------------------------------------


def error(cell: Cell) -> float:
    """Return half of the interval's width."""
    return (cell.high - cell.low) / 2


def text_of(cell: Cell) -> str:
    """Return a number with its interval."""
    return plain_text(cell_text(cell))


def cell_of(result: Mapping[str, Any]) -> Cell:
    """Read a number of metrics.json; a limit has no upper end."""
    value, low, high = (math.inf if result[key] is None else result[key] for key in ("value", "low", "high"))
    return Cell(value, low, high, num_background=result["num_background"], is_limit=result["is_limit"])


def result_row(result: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return what a number is, the number, and how many background jets it is based on."""
    text = cell_text(cell_of(result))
    title = {"accuracy": "accuracy", "auc": "AUC (mean over pairs of classes)"}.get(result["metric"])
    title = title or f"rejection of QCD at {100 * result['signal_efficiency']:g} % {result['signal']}"
    return title, plain_text(text).partition(" [")[0], text.count


def found_row(classes: Sequence[str], number: int, shares: Sequence[float]) -> tuple[str, float, str, float]:
    """Return a class, how often it is found, what it is taken for most often otherwise, and how often."""
    share, other = max((share, other) for other, share in enumerate(shares) if other != number)
    return classes[number], shares[number], classes[other], share


def write_card(name: str, run: Path, report: Path) -> None:
    """Write everything."""
    tagger = load_torch_tagger(run)
    metrics = json.loads((report / "metrics.json").read_text())
    (model,) = (row for row in metrics["table"] if row["source"] is None)
    summary = metrics["models"][model["model"]][0]
    definition = json.loads((run / "run.json").read_text())
    environment = json.loads((run / "environment.json").read_text())[-1]
    predictions = [
        json.loads((folder / "predict.json").read_text())
        for folder in sorted({Path(file).parent for file in summary["files"]})
    ]
    if any(one["tagger_sha256"] != tagger.sha256 for one in predictions):
        raise SystemExit(f"{report} is about another tagger than that of {run}")
    sets: dict[Purpose, JetSet] = {
        "training": jet_set(definition["train"]["files"]),
        "validation": jet_set(definition["validation"]["files"]),
        "test": jet_set(output["input"] for one in predictions for output in one["outputs"]),
    }
    check_seeds(sets)
    num_evaluated = sum(summary["jets"].values())
    if sets["test"].num_jets != num_evaluated:
        raise SystemExit(f"{report}: {num_evaluated} jets of {sets['test'].num_jets} were evaluated")
    facts = Facts(
        tagger_sha256=tagger.sha256,
        training_jets=sets["training"].num_jets,
        validation_jets=sets["validation"].num_jets,
        test_jets=sets["test"].num_jets,
        simulation_seeds={purpose: list(one.seeds) for purpose, one in sets.items()},
        accuracy=Measured(value=summary["accuracy"]["value"], error=summary["accuracy"]["error"]),
        auc=Measured(value=summary["auc"]["value"], error=summary["auc"]["error"]),
        page=f"docs/taggers/{name}.md",
    )
    simulation = sets["test"].settings
    page = TEMPLATE.render(
        name=name,
        tagger=tagger,
        facts=facts,
        num_parameters=tagger.network.num_parameters,
        features=[variable.name for variable in tagger.data_config.particles.variables],
        simulation=simulation,
        pt_range=f"{simulation['--pt-min']:g} to {simulation['--pt-max']:g}",
        sets=sets,
        recipe=definition["recipe"],
        seed=definition["seed"],
        environment=environment,
        epochs=read_metrics(run / METRICS_FILE, "epoch"),
        results=[result_row(result) for result in model["results"]],
        found=[found_row(summary["classes"], number, row) for number, row in enumerate(summary["confusion"])],
        calibration_error=summary["calibration"]["expected_error"],
        real=compare_with_real_jets(tagger, sets["test"]),
    )
    folder = ROOT / "docs" / "taggers"
    (folder / name).mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        shutil.copy(report / "figures" / f"{figure}.png", folder / name / f"{figure}.png")
    shutil.copy(run / "best.safetensors", SHIPPED / f"{name}.safetensors")
    (SHIPPED / f"{name}.json").write_text(facts.model_dump_json(indent=1) + "\n")
    (folder / f"{name}.md").write_text(page, encoding="utf-8")
    print(f"{folder / name}.md: accuracy {facts.accuracy.value:.4f} ± {facts.accuracy.error:.4f}")


def main() -> None:
    """Read the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("name")
    parser.add_argument("--run", type=Path, required=True, help="run folder of `partt train`")
    parser.add_argument("--report", type=Path, required=True, help="folder of `partt evaluate --run ...`")
    options = parser.parse_args()
    write_card(options.name, options.run, options.report)


if __name__ == "__main__":
    main()
