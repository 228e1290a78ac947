"""Where scores go: never onto an input, never two to one place; and what discriminants and classes are called."""

from pathlib import Path

import numpy as np
import pytest

from partt.errors import ConfigError
from partt.prediction.outputs import output_paths
from partt.scores.discriminants import parse_discriminant
from partt.scores.scores import column_names

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
    assert column_names(["../../x", "H->bb", "b-jet", "τ"]) == ("______x", "H__bb", "b_jet", "_")
    with pytest.raises(ConfigError, match="'b-jet' and 'b.jet' would have one name, score_b_jet"):
        column_names(["b-jet", "c", "b.jet"])


def test_discriminants():
    scores = np.array([[0.2, 0.3, 0.5], [np.nan, np.nan, np.nan], [1.0, 0.0, 0.0]])
    one = parse_discriminant("Hbb_vs_QCD", CLASSES)
    assert (one.name, one.signal, one.background) == ("Hbb_vs_QCD", (1,), (0,))
    np.testing.assert_allclose(one.values(scores), [0.6, np.nan, 0.0])
    several = parse_discriminant("Hbb+Hcc_vs_QCD", CLASSES)
    assert several.name == "Hbb_Hcc_vs_QCD"
    np.testing.assert_allclose(several.values(scores), [0.8, np.nan, 0.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hbb", "should be SIGNAL_vs_BACKGROUND"),
        ("_vs_QCD", "should be SIGNAL_vs_BACKGROUND"),
        ("Hbb_vs_QCD_vs_Hcc", "should be SIGNAL_vs_BACKGROUND"),
        ("Hbd_vs_QCD", r"no class 'Hbd' \(did you mean 'Hbb'\?\); its classes: QCD, Hbb, Hcc"),
        ("Hbb_vs_QCD+Hbb", "cannot stand on both sides"),
    ],
)
def test_wrong_discriminants(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_discriminant(text, CLASSES)
