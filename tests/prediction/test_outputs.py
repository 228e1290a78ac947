"""Paths of outputs: no input is replaced, no path is used twice; names of columns; discriminants."""

import time
from pathlib import Path

import numpy as np
import pytest

from partt.errors import ConfigError
from partt.prediction.outputs import output_paths
from partt.scores.columns import discriminant_column, label_columns, score_columns
from partt.scores.discriminants import Discriminant, parse_discriminant

CLASSES = ("QCD", "Hbb", "Hcc")


def names(urls, out="out", suffix=".root"):
    return [str(path) for path in output_paths(urls, Path(out), suffix)]


def test_outputs_are_called_like_their_inputs():
    assert names(["/a/x.root", "/b/y.parquet"]) == ["out/x.root", "out/y.root"]
    assert names(["root://host//a/x.1.root?token=3"], suffix=".parquet") == ["out/x.1.parquet"]
    assert names(["/a/x.root"], "scores.parquet") == ["scores.parquet"]


def test_inputs_of_one_name_keep_the_folders_in_which_they_differ():
    assert names(["/d/a/x.root", "/d/b/x.root"]) == ["out/a/x.root", "out/b/x.root"]
    assert names(["/d/a/x.root", "/d/x.root"]) == ["out/a/x.root", "out/x.root"]
    urls = ["root://one//d/x.root", "https://two/d/../x.root", "/etc/x.root"]
    assert names(urls) == ["out/one/d/x.root", "out/two/d/x.root", "out/etc/x.root"]
    with pytest.raises(ConfigError, match="two inputs would have the same output"):
        names(["/a/x.root", "/a/x.parquet"])


def test_an_input_is_never_replaced(tmp_path):
    path = tmp_path / "x.root"
    path.touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for out in (tmp_path, tmp_path / "link", path):
        with pytest.raises(ConfigError, match="would replace the input"):
            names([str(path)], out)
    with pytest.raises(ConfigError, match="is one file, but there are 2 inputs"):
        names(["/a/x.root", "/b/y.root"], "scores.root")


def test_class_names_become_names_that_root_allows():
    classes = ["../../x", "H->bb", "b-jet", "τ"]
    assert score_columns(classes) == ("score_______x", "score_H__bb", "score_b_jet", "score__")
    assert label_columns(classes) == ("label_______x", "label_H__bb", "label_b_jet", "label__")
    with pytest.raises(ConfigError, match="'b-jet' and 'b.jet' would share the column score_b_jet; rename"):
        score_columns(["b-jet", "c", "b.jet"])


def test_discriminants():
    scores = np.array([[0.2, 0.3, 0.5], [np.nan, np.nan, np.nan], [1.0, 0.0, 0.0]]).T
    one = parse_discriminant("Hbb_vs_QCD", CLASSES)
    assert (one.name, one.signals, one.backgrounds) == ("Hbb_vs_QCD", ("Hbb",), {"QCD": 1.0})
    np.testing.assert_allclose(one.values(scores, CLASSES), [0.6, np.nan, 0.0])
    several = parse_discriminant("Hbb+Hcc_vs_QCD", CLASSES)
    assert several.name == "Hbb_Hcc_vs_QCD"
    np.testing.assert_allclose(several.values(scores, CLASSES), [0.8, np.nan, 0.0])
    assert discriminant_column(Discriminant(("H->bb",), {"b-jet": 1.0})) == "H__bb_vs_b_jet"


def test_a_jet_without_any_score_is_background():
    """0/0 is 0; NaN is only where a score is NaN, also if the other scores are 0."""
    scores = np.array([[0.0, 0.0, 1.0], [np.nan, 0.0, 1.0], [0.0, np.nan, 1.0], [0.0, 0.0, np.nan]]).T
    values = parse_discriminant("Hbb_vs_QCD", CLASSES).values(scores, CLASSES)
    np.testing.assert_array_equal(values, [0.0, np.nan, np.nan, 0.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hbb", "should be SIGNAL_vs_BACKGROUND"),
        ("_vs_QCD", "should be SIGNAL_vs_BACKGROUND"),
        ("Hbb_vs_QCD_vs_Hcc", "should be SIGNAL_vs_BACKGROUND"),
        ("Hbd_vs_QCD", r"no class 'Hbd' \(did you mean 'Hbb'\?\); its classes: QCD, Hbb, Hcc"),
        ("Hbb_vs_QCD+Hbb", "a class can be named only once"),
        ("Hbb_vs_QCD+QCD", "a class can be named only once"),
    ],
)
def test_wrong_discriminants(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_discriminant(text, CLASSES)


def test_many_inputs_take_no_time_to_name():
    """Each path was compared with all others: minutes for 20,000 files."""
    before = time.process_time()
    paths = names([f"root://host//jets/{number}.root" for number in range(20_000)])
    assert len(set(paths)) == 20_000
    assert time.process_time() - before < 20
