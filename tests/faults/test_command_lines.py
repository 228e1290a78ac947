"""Odd command lines: options that are given twice, and names that the system refuses."""

import pytest

import partt
from partt.cli.main import VERBS, main, parse

JETS = str(partt.sample_files()[0])
LONG = "x" * 300  # a name has at most 255 bytes
TRAIN = ["--train", *map(str, partt.sample_files()), "--val-fraction", "0.1"]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["check", "jetclass_kin", "--train", "a", "--train", "b"], "train"),
        (["check", "jetclass_kin", "--test", "a", "--test", "b"], "test"),
        (["train", "quick", "--train", "a", "--train", "b", "--val", "c"], "train"),
        (["train", "quick", "--train", "c", "--val", "a", "--val", "b"], "val"),
        (["train", "quick", *TRAIN, "--teacher", "a", "--teacher", "b"], "teacher"),
        (["predict", "--tagger", "a", "--tagger", "b", "--demo"], "tagger"),
        (["predict", "--keep", "a", "--keep", "b", "--demo"], "keep"),
        (["evaluate", "c", "--out", "r", "--signal", "a", "--signal", "b"], "signal"),
        (["evaluate", "c", "--out", "r", "--background", "a", "--background", "b"], "background"),
        (["evaluate", "c", "--out", "r", "--bins", "a", "--bins", "b"], "bins"),
        (["evaluate", "c", "--out", "r", "--baseline", "a", "--baseline", "b"], "baseline"),
        (["evaluate", "c", "--out", "r", "--working-points", "a", "--working-points", "b"], "working_points"),
        (["evaluate", "c", "--out", "r", "--compare", "a", "--compare", "b"], "compare"),
        (["explain", "t", "c", "--group", "a", "--group", "b"], "group"),
        (["download", "jetclass", "--out", "o", "--only", "a", "--only", "b"], "only"),
    ],
)
def test_lists_that_are_given_in_two_parts_are_one(words, option):
    """Only the second part was used, without a word: `--train QCD:'q*.root' --train Top:'t*.root'`."""
    options = vars(parse(words))
    assert options.get(option, options.get(f"{option}s")) == ["a", "b"]


def test_no_list_of_a_verb_takes_the_last_part_only():
    for verb in VERBS:
        with pytest.raises(SystemExit):
            main([verb, "--help"])
    classes = ["simulate", "--out", "o", "--jets", "1", "--classes", "Hbb", "--classes", "QCD"]
    assert parse(classes).classes == ["Hbb", "QCD"]
    assert parse([*classes, "--extra", "vertices", "--extra", "generator"]).extra == ["vertices", "generator"]
    assert parse(["show", "t", "f", "--entry", "3", "--entry", "4"]).entry == [3, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "a", "--out", "r", "--bins", "jet_pt=1,2", "jet_pt=2,3"], "jet_pt has others already"),
        (["explain", "jetclass-200k", JETS, "--group", "a=part_deta", "a=part_dphi"], "another group a;"),
    ],
)
def test_a_name_with_two_meanings_is_refused(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_folder_with_two_fractions_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", "--out", "o", "--jets", "1", "--split", "a=0.5,a=0.5"])
    assert "'a' is there twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "--tagger", f"{LONG}/a", JETS],
        ["check", f"{LONG}.yaml", JETS],
        ["check", "jetclass_kin", f"{LONG}.root:tree"],
        ["check", "jetclass_kin", JETS, "--input", f"{LONG}.yaml"],
        ["train", f"{LONG}.yaml", *TRAIN],
        ["train", "quick", *TRAIN, "--set", f"data_config={LONG}"],
        ["train", "quick", *TRAIN, "--set", f"model={{file: {LONG}}}"],
        ["train", "quick", *TRAIN, "--network", LONG],
        ["train", "quick", *TRAIN, "--out", LONG, "--seeds", "2"],
        ["explain", LONG, JETS],
        ["show", f"{LONG}/a", JETS, "--entry", "1"],
        ["export", f"{LONG}/a", "--out", "a.onnx"],
        ["download", f"{LONG}.yaml", "--out", "o"],
    ],
)
def test_names_that_the_system_refuses_are_one_line(words, tmp_path, monkeypatch, capsys):
    """As are those in folders that may not be entered, which root, who runs tests, may always do."""
    monkeypatch.chdir(tmp_path)
    assert main(words) in {2, 3, 5}
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("partt: error: ")
    assert LONG in error
