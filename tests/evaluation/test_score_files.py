"""Prediction files of partt and weaver, ROOT and parquet: rows left out are counted, faults are named."""

import importlib
import logging
from types import SimpleNamespace

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import partt
from partt.data.files.tables import inspect_file, write_table
from partt.errors import DataError
from partt.evaluation.jets import scores_from_arrays
from partt.evaluation.score_files import open_score_files, read_scores
from partt.scores.columns import output_table, own_columns, recognise
from partt.scores.discriminants import parse_discriminant
from partt.scores.scores import Scores
from toy_scores import CLASSES, random_scores, score_table, write_scores


def read(*arguments, **options):
    (files,) = open_score_files([str(argument) for argument in arguments])
    return read_scores(files, **options)


def without(table, *names):
    return {name: column for name, column in table.items() if name not in names}


def same(one, two):
    assert one.class_names == two.class_names
    for left, right in zip(one.jets, two.jets, strict=True):
        np.testing.assert_array_equal(left.scores, right.scores)


def test_files_of_partt(tmp_path):
    table = score_table(500)
    write_table(tmp_path / "scores.root", table)
    scores = read(tmp_path / "scores.root", observers=("jet_pt",), weights="weight")
    assert scores.class_names == CLASSES
    assert scores.num_jets == scores.num_rows == 500
    is_hbb = table["label_Hbb"] == 1
    np.testing.assert_array_equal(scores.of("Hbb").scores[0], table["score_QCD"][is_hbb])
    np.testing.assert_array_equal(scores.of("Hbb").observers["jet_pt"], table["jet_pt"][is_hbb])
    np.testing.assert_array_equal(scores.of("Hbb").weights, table["weight"][is_hbb])


def test_what_prediction_writes_is_recognised(tmp_path):
    """Class names that ROOT does not allow, discriminants and embeddings included."""
    classes = ("QCD", "H->bb", "Tbl")
    probabilities, labels = random_scores(50, classes=classes)
    labels[3] = -1
    scores = Scores(
        class_names=classes,
        probabilities=probabilities.astype(np.float64),
        labels=labels,
        observers={"jet_pt": np.linspace(500, 1000, 50, dtype=np.float32)},
        selected=np.ones(50, dtype=bool),
        bad=np.zeros(50, dtype=bool),
        source_file="jets.root",
        source_entry=np.arange(50),
        embeddings=np.ones((50, 4), dtype=np.float32),
    )
    discriminants = [parse_discriminant("H->bb_vs_QCD", classes)]
    table = output_table(scores, discriminants)
    assert set(own_columns(classes, discriminants, embeddings=True)) | {"jet_pt"} == set(table)
    write_table(tmp_path / "scores.root", table)
    file = recognise(inspect_file(str(tmp_path / "scores.root")))
    names = ("QCD", "H__bb", "Tbl")
    assert dict(file.score_columns) == {name: f"score_{name}" for name in names}
    assert file.label_columns == tuple(f"label_{name}" for name in names)
    assert file.observers == ("H__bb_vs_QCD", "jet_pt")
    np.testing.assert_array_equal(file.labels(table, 0), labels)
    same(read(tmp_path / "scores.root"), scores_from_arrays(names, probabilities, labels))


def test_parquet(tmp_path):
    table = score_table(300)
    pa.parquet.write_table(pa.table(table), tmp_path / "scores.parquet", row_group_size=70)
    write_table(tmp_path / "scores.root", table)
    same(read(tmp_path / "scores.parquet"), read(tmp_path / "scores.root"))


def test_files_that_weaver_writes(tmp_path, monkeypatch):
    from weaver.train import save_root

    probabilities, labels = random_scores(400)
    config = SimpleNamespace(
        label_type="simple", label_value=[f"label_{name}" for name in CLASSES], label_names=("_label_",)
    )
    observers = {"jet_pt": np.linspace(500, 1000, 400, dtype=np.float32)}
    path = tmp_path / "pred.root"
    logger = logging.getLogger("weaver")
    monkeypatch.setattr(logger, "info", lambda *_, **__: None, raising=False)
    monkeypatch.setattr(
        "weaver.train._logger", SimpleNamespace(info=lambda *_, **__: None, error=pytest.fail)
    )
    save_root(None, str(path), config, probabilities, {"_label_": labels}, observers)
    file = recognise(inspect_file(str(path)))
    assert dict(file.score_columns) == {name: f"score_label_{name}" for name in CLASSES}
    assert file.observers == ("jet_pt",)
    same(read(path), scores_from_arrays(CLASSES, probabilities, labels))


def test_class_numbers_instead_of_flags(tmp_path):
    probabilities, labels = random_scores(200)
    table = {f"score_label_{name}": probabilities[:, i].copy() for i, name in enumerate(CLASSES)}
    write_table(tmp_path / "scores.root", table | {"_label_": labels})
    same(read(tmp_path / "scores.root"), scores_from_arrays(CLASSES, probabilities, labels))


def test_labels_named_after_their_branch(tmp_path):
    probabilities, labels = random_scores(100, classes=("Top", "QCD"))
    table = {f"score_jet_is{name}": probabilities[:, i].copy() for i, name in enumerate(("Top", "QCD"))}
    table |= {f"jet_is{name}": labels == i for i, name in enumerate(("Top", "QCD"))}
    write_table(tmp_path / "scores.root", table)
    same(
        read(tmp_path / "scores.root"), scores_from_arrays(("jet_isTop", "jet_isQCD"), probabilities, labels)
    )


def test_what_is_left_out_is_counted(tmp_path):
    table = score_table(100)
    table["selected"][:10] = False
    table["score_Hbb"][5:20] = np.nan
    for name in CLASSES:
        table[f"label_{name}"][20:23] = 0
    table["weight"][23:27] = [np.nan, np.inf, -np.inf, -1.0]  # the last one is valid
    write_table(tmp_path / "scores.root", table)
    scores = read(tmp_path / "scores.root", weights="weight")
    assert scores.left_out == {
        "not selected": 10,
        "score is NaN": 10,
        "no class": 3,
        "weight is not finite": 3,
    }
    assert scores.num_rows == 100
    assert scores.num_jets == 100 - 26


@pytest.mark.parametrize(
    ("changes", "drop", "message"),
    [
        ({}, [f"label_{name}" for name in CLASSES], "has no labels .label_QCD"),
        ({}, ["label_Hbb"], "no label_Hbb"),
        ({}, [f"score_{name}" for name in CLASSES], "has no score_<class> columns"),
        ({}, ["score_Hbb", "score_Tbl"], "scores of one class only, 'QCD'"),
        ({"label_Hbb": np.ones(50, dtype=np.int32)}, [], r"entry \d+ has several labels: label_.*Hbb"),
        (
            {"score_QCD": np.full(50, 3, dtype=np.float32)},
            [],
            "entry 0 has a score outside 0 to 1; is the softmax missing",
        ),
        (
            {"score_QCD": np.full(50, np.nan, dtype=np.float32)},
            [],
            r"no jets left to evaluate \(score is NaN: 50\)",
        ),
        ({"selected": np.zeros(50, dtype=bool)}, [], r"no jets left to evaluate \(not selected: 50\)"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, drop, message):
    write_table(tmp_path / "scores.root", without(score_table(50), *drop) | changes)
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path / "scores.root")
    assert "scores.root" in str(error.value)


def test_a_missing_column_is_named_with_those_there_are(tmp_path):
    path = write_scores(tmp_path / "scores.root", 20)
    with pytest.raises(DataError, match=r"no column 'jet_pT' \(did you mean 'jet_pt'\?\)"):
        read(path, observers=("jet_pT",))
    with pytest.raises(DataError, match="no column 'genWeight'"):
        read(path, weights="genWeight")


def test_files_of_other_classes_are_not_mixed(tmp_path):
    paths = [write_scores(tmp_path / "a.root"), write_scores(tmp_path / "b.root", classes=("QCD", "Top"))]
    with pytest.raises(DataError, match="b.root has scores of QCD, Top; .*a.root of QCD, Hbb, Tbl"):
        open_score_files(paths)


def test_files_with_other_jets_are_one_set(tmp_path):
    paths = [write_scores(tmp_path / f"{seed}.root", 100, seed=seed) for seed in range(3)]
    (files,) = open_score_files(paths)
    assert read_scores(files).num_jets == 300


def test_files_with_the_same_jets_are_seeds(tmp_path):
    paths = [
        write_scores(tmp_path / f"seed{seed}_part{part}.root", 100, seed=10 * seed + part, jets_seed=part)
        for seed in range(2)
        for part in range(3)
    ]
    seeds = open_score_files(paths)
    assert [[file.info.url for file in seed] for seed in seeds] == [paths[:3], paths[3:]]
    with pytest.raises(DataError, match="the same jets 2 times .*seed0_part2.root comes 1 times"):
        open_score_files(paths[:5])


def test_files_without_jets_are_no_seeds(tmp_path):
    """Two of them were the same jets twice, and the other files came too few times."""
    sizes = {"a": 100, "b": 0, "c": 0}
    paths = [write_scores(tmp_path / f"{name}.root", size) for name, size in sizes.items()]
    (files,) = open_score_files(paths)
    assert read_scores(files).num_jets == 100
    with pytest.raises(DataError, match="no jets left to evaluate"):
        read(paths[1])


def test_one_class_files_without_observers_are_parts(tmp_path):
    for number in range(2):
        table = score_table(50, seed=number)
        table = {name: column for name, column in table.items() if name.startswith(("score_", "label_"))}
        for name in CLASSES:
            table[f"label_{name}"][:] = name == "QCD"
        write_table(tmp_path / f"{number}.root", table)
    (files,) = open_score_files([str(tmp_path / "*.root")])
    assert len(files) == 2


def test_arrays_are_checked():
    probabilities, labels = random_scores(30)
    with pytest.raises(DataError, match=r"scores have shape \(30, 3\); expected: \(jets, 2\)"):
        scores_from_arrays(["a", "b"], probabilities, labels)
    with pytest.raises(DataError, match=r"labels have shape \(29,\); expected: \(30,\)"):
        scores_from_arrays(CLASSES, probabilities, labels[1:])
    with pytest.raises(DataError, match=r"weights have shape"):
        scores_from_arrays(CLASSES, probabilities, labels, weights=[1.0])
    with pytest.raises(DataError, match="label 3 in a file of 3 classes"):
        scores_from_arrays(CLASSES, probabilities, labels + 1)


def test_awkward_lists_are_refused(tmp_path):
    from partt.data.jagged import from_awkward

    table = score_table(2) | {"jet_list": from_awkward(ak.Array([[1.0, 2.0], [3.0]]))}
    write_table(tmp_path / "scores.root", table)
    with pytest.raises(DataError, match="column 'jet_list' is a list for each jet"):
        read(tmp_path / "scores.root", observers=("jet_list",))


def test_python_users_find_it():
    assert callable(partt.evaluate)
    importlib.import_module("partt.evaluation.evaluate")

    assert callable(partt.evaluate)
    assert partt.scores_from_arrays is scores_from_arrays
