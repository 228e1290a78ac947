"""Several taggers as one: of other networks and inputs, as a list and as a file."""

import json
from dataclasses import replace

import awkward as ak
import numpy as np
import pytest
import torch
from regression_taggers import regression_tagger

import partt
from jets import CLASSES, make_jets, write_jets
from partt.cli.main import main
from partt.data.files.tables import inspect_file, read_columns
from partt.data.jagged import Jagged
from partt.errors import ConfigError, DataError
from partt.tagger.ensemble import make_ensemble
from partt.tagger.ensemble_file import read_ensemble, save_ensemble
from partt.tagger.loading import load_tagger
from partt.tagger.tagger_file import save_tagger
from partt.training.teacher import make_teacher
from small_networks import make_tagger

REVERSED = {"type": "simple", "value": [f"label_{name}" for name in CLASSES[::-1]]}


def member(case, config, **changes):
    return make_tagger(case, config, make_jets(6, seed=2), **changes).with_hash()


@pytest.fixture(scope="module")
def members():
    """Return two networks, three sets of inputs, and an order of classes and a definition that differ."""
    pt = {"part_pt": "part_energy", "part_pt_log": "np.log(part_pt)"}
    other = member("pfn", "jetclass_kin", labels=REVERSED, selection="jet_nparticles > 5")
    config = other.data_config.replace(new_variables={**other.data_config.new_variables, **pt})
    return [member("part", "jetclass_full"), member("pfn", "jetclass_kin"), _with(other, config)]


def _with(tagger, config):
    return replace(tagger, data_config=config, sha256="").with_hash()


def scores_of(tagger, file):
    return tagger.tag(tagger.read(inspect_file(str(file)), 0, 300))


def test_scores_are_the_mean_of_log_probabilities(members, jet_file, tmp_path, exported):
    _, onnx = exported("pfn")
    members = [*members, load_tagger(onnx.path)]
    ensemble = make_ensemble(members)
    found = scores_of(ensemble, jet_file)
    product, selected = np.ones((300, 10)), np.ones(300, dtype=bool)
    for one in members:
        tagged = scores_of(one, jet_file)
        product *= tagged.probabilities[:, [one.class_names.index(name) for name in CLASSES]]
        selected &= tagged.selected
    expected = product ** (1 / 4)
    expected /= expected.sum(axis=1, keepdims=True)
    assert 0 < np.count_nonzero(selected) < 300
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-6)
    np.testing.assert_array_equal(found.selected, selected)
    np.testing.assert_array_equal(np.isfinite(found.probabilities).all(axis=1), selected & ~found.bad)
    save_ensemble(tmp_path / "all.safetensors", members)
    loaded = load_tagger(tmp_path / "all.safetensors")
    assert (loaded.sha256, loaded.num_networks) == (ensemble.sha256, 4)
    np.testing.assert_array_equal(scores_of(loaded, jet_file).probabilities, found.probabilities)
    assert loaded.network_name == "ensemble of part, 3 x pfn"
    labels = make_teacher(loaded, CLASSES).label(inspect_file(str(jet_file)), 0, 300, np.arange(50, 90), None)
    np.testing.assert_allclose(labels.exp()[selected[50:90]], expected[50:90][selected[50:90]], rtol=1e-4)


def test_events_give_the_same_scores(members, jet_file):
    names = sorted(inspect_file(str(jet_file)).branches)
    columns = read_columns(str(jet_file), names, 0, 300)
    events = ak.Array(
        {
            name: ak.unflatten(column.contents, column.lengths) if isinstance(column, Jagged) else column
            for name, column in columns.items()
        }
    )
    ensemble = make_ensemble(members)
    expected = scores_of(ensemble, jet_file).probabilities
    np.testing.assert_allclose(ensemble(events)["Hbb"], expected[:, 1].astype(np.float32), rtol=1e-6)


def _shuffled(tagger):
    """Return a tagger with other weights, and another scale of a target."""
    with torch.no_grad():
        for parameter in tagger.network.parameters():
            parameter.mul_(0.5)
    return replace(tagger, tasks=tuple(task.replace(scale=2.0 * task.scale) for task in tagger.tasks))


def test_regressions_are_means(jet_file):
    taggers = [regression_tagger(), _shuffled(regression_tagger())]
    found = scores_of(make_ensemble(taggers), jet_file)
    parts = [scores_of(one, jet_file).predictions for one in taggers]
    assert found.predictions.keys() == parts[0].keys()
    for name, values in found.predictions.items():
        np.testing.assert_allclose(values, (parts[0][name] + parts[1][name]) / 2)


def test_the_command_line(members, jet_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, one in enumerate(members[:2]):
        save_tagger(f"{number}.safetensors", one)
    write_jets(tmp_path / "jets.root", 40)
    assert main(["export", "0.safetensors", "1.safetensors", "--out", "both.safetensors"]) == 0
    assert "ensemble of part, pfn" in capsys.readouterr().out
    both = ["--tagger", "0.safetensors", "1.safetensors"]
    assert main(["predict", *both, "jets.root", "--out", "list.root", "--threads", "1"]) == 0
    assert main(["predict", "jets.root", "--tagger", "both.safetensors", "--out", "list.root"]) == 0
    assert "1 already complete" in capsys.readouterr().out  # the same taggers, the same scores
    scores = read_columns("list.root", ["score_Hbb"], 0, 40)["score_Hbb"]
    expected = make_ensemble(members[:2]).tag(
        make_ensemble(members[:2]).read(inspect_file("jets.root"), 0, 40)
    )
    np.testing.assert_allclose(scores, expected.probabilities[:, 1].astype(np.float32), rtol=1e-6)
    assert main(["predict", *both, "jets.root", "--embeddings", "--out", "other.root"]) == 2
    assert "an ensemble has no embeddings" in capsys.readouterr().err
    assert main(["export", "both.safetensors", "--out", "both.onnx"]) == 2
    assert "both.safetensors is an ensemble of taggers" in capsys.readouterr().err
    assert json.loads((tmp_path / "predict.json").read_text())["network"] == "ensemble of part, pfn"


def test_outputs_have_the_columns_of_the_first_member(members, jet_file, tmp_path):
    """Its inputs are those of the last one, too; the one between has others."""
    full, kin = members[:2]
    partt.predict(make_ensemble([full, kin, full]), jet_file, tmp_path / "scores.root", num_threads=1)
    partt.predict(full, jet_file, tmp_path / "first.root", num_threads=1)
    branches = inspect_file(str(tmp_path / "scores.root")).branches
    assert branches.keys() == inspect_file(str(tmp_path / "first.root")).branches.keys()


def test_broken_and_unlike_members_are_refused(members, tmp_path):
    path = tmp_path / "both.safetensors"
    save_ensemble(path, members[:2])
    contents = bytearray(path.read_bytes())
    contents[-100] ^= 1
    path.write_bytes(contents)
    with pytest.raises(DataError, match=r"both.safetensors is damaged: its contents do not match"):
        read_ensemble(path)
    two = member("pfn", "jetclass_kin", labels={"type": "simple", "value": ["label_QCD", "label_Hbb"]})
    with pytest.raises(ConfigError, match="same classes: the first has QCD, Hbb, .*; number 2 has QCD, Hbb$"):
        make_ensemble([members[0], two])
    with pytest.raises(ConfigError, match="two taggers or more"):
        save_ensemble(tmp_path / "one.safetensors", members[:1])
    save_tagger(tmp_path / "one.safetensors", members[0])
    with pytest.raises(ConfigError, match=r"one\.safetensors"):
        save_ensemble(tmp_path / "one.safetensors", members[:2])
    assert partt.load_tagger([tmp_path / "one.safetensors"]).network_name == "part"
