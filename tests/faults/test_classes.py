"""Classes without jets, and names of classes: `check`, `train`, `predict` and `evaluate` agree about them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import roc_auc_score

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

from jets import write_jets
from partt.cli.main import main
from partt.config import shipped_file
from partt.data.files.tables import inspect_file, write_table
from partt.evaluation.evaluate import evaluate
from partt.evaluation.score_files import open_score_files
from partt.scores.columns import label_columns, output_table, score_columns
from partt.scores.scores import Scores
from partt.training.objectives.classification import area_under_curve
from training_jobs import TINY_RECIPE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder with a recipe and files of single classes."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "epochs": 1, "jets_per_epoch": 32}))
    for seed, name in enumerate(["QCD", "Hbb", "Hcc"]):
        write_jets(tmp_path / f"{name}.root", 60, [name], seed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*words: str) -> int:
    return main(["train", "tiny.yaml", *words, "--threads", "1", "--workers", "0"])


def check(capsys, *words: str) -> tuple[int, dict]:
    code = main(["check", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def errors(report: dict) -> str:
    return "\n".join(finding["text"] for finding in report["findings"] if finding["severity"] == "error")


def test_one_class_is_refused_by_train_and_by_check(folder, capsys):
    assert train("--train", "QCD.root", "--val", "Hbb.root") == 3
    message = capsys.readouterr().err
    assert "all training jets are QCD" in message
    assert "add files of Hbb, Hcc" in message
    assert message.count("\n") == 1
    for limit in (["--deep"], ["--limit", "10"]):
        code, report = check(capsys, "jetclass_kin", "QCD.root", *limit)
        assert code == 3
        assert "all jets are QCD: training needs jets of two classes or more" in errors(report)
    write_jets(
        folder / "both.root", 60, label_Hbb=np.arange(60) >= 30, label_QCD=np.arange(60) < 30, **no_labels()
    )
    assert check(capsys, "jetclass_kin", "both.root", "--limit", "10")[0] == 0


def no_labels() -> dict:
    others = ("Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
    return {f"label_{name}": np.zeros(60, dtype=np.int32) for name in others}


def test_training_names_the_classes_without_jets(folder, capsys):
    assert train("--train", "QCD.root", "Hbb.root", "--val", "Hcc.root", "--out", "run") == 0
    printed = capsys.readouterr().out
    assert "note: no training jets of Hcc, Hgg, H4q" in printed
    assert "note: no validation jets of QCD, Hbb, Hgg" in printed
    assert "there is no AUC" in printed


def test_the_area_is_that_of_the_pairs_that_exist(folder, capsys):
    write_jets(folder / "more.root", 60, ["QCD", "Hbb", "Hcc"], seed=9)
    words = ["--train", "QCD.root", "Hbb.root", "Hcc.root", "--val", "more.root", "--set", "metric=auc"]
    assert train(*words, "--out", "run") == 0
    assert "the AUC is the mean over pairs of the other classes" in capsys.readouterr().out
    last = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < last["validation_auc"] < 1


def test_the_area_without_a_class_equals_that_of_the_others():
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 200)
    scores = random.dirichlet(np.ones(3), 200)
    expected = roc_auc_score(labels, scores, multi_class="ovo")
    assert area_under_curve(scores, labels) == pytest.approx(expected, abs=1e-12)
    pair = np.round(scores[:, :2], 1)  # with ties
    expected = roc_auc_score(labels[labels < 2], pair[labels < 2, 1])
    assert area_under_curve(pair[labels < 2], labels[labels < 2]) == pytest.approx(expected, abs=1e-12)
    with_another = np.concatenate([scores, np.zeros((200, 1))], axis=1)
    assert area_under_curve(with_another, labels) == pytest.approx(
        area_under_curve(scores, labels), abs=1e-12
    )
    two = np.where(labels == 2, 1, labels)
    assert area_under_curve(with_another, two) is not None
    assert area_under_curve(with_another, np.zeros(200, dtype=int)) is None


@pytest.mark.parametrize("test_files", [[], ["--test", "Hcc.root"]])
def test_an_empty_reweighting_class_is_refused_by_check_too(folder, capsys, test_files):
    config = yaml.safe_load(shipped_file("data_configs", "jetclass_kin").read_text())
    config["weights"] = {
        "reweight_method": "flat",
        "reweight_vars": {"jet_pt": [0, 1e6]},
        "reweight_classes": ["label_QCD", "label_Hbb", "label_Hcc"],
    }
    (folder / "weighted.yaml").write_text(yaml.safe_dump(config))
    recipe = {**TINY_RECIPE, "data_config": str(folder / "weighted.yaml"), "epochs": 1}
    (folder / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    assert train("--train", "QCD.root", "Hbb.root", "--val", "Hcc.root") == 3
    assert "no jet of label_Hcc is in the bins" in capsys.readouterr().err
    code, report = check(
        capsys, "weighted.yaml", "--train", "QCD.root", "Hbb.root", "--limit", "10", *test_files
    )
    assert code == 3
    assert "no jet of label_Hcc is in the bins" in errors(report)
    assert check(capsys, "weighted.yaml", "QCD.root", "Hbb.root", "Hcc.root", "--limit", "10")[0] == 0


@pytest.mark.parametrize(
    "names",
    [
        ("label_A", "label_B", "C"),
        ("A", "label_A", "label_label_A"),
        ("_A", "__B", "_"),
        ("score_A", "label_", "_label_"),
    ],
)
def test_every_class_that_predict_writes_is_found(tmp_path, names):
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    scores = random.dirichlet(np.ones(3), 90)
    flags = np.ones(90, dtype=bool)
    table = output_table(Scores(names, scores, labels, {}, flags, ~flags, "x.root", np.arange(90)), [])
    assert len({*score_columns(names), *label_columns(names)}) == 6
    write_table(
        tmp_path / "scores.root", {name: column for name, column in table.items() if name != "source_file"}
    )
    ((found,),) = open_score_files([str(tmp_path / "scores.root")])
    assert tuple(found.score_columns) == names
    assert found.label_columns == label_columns(names)
    assert inspect_file(str(tmp_path / "scores.root")).num_entries == 90
    evaluate(tmp_path / "scores.root", out=tmp_path / "report" if names[0] == "_A" else None)
