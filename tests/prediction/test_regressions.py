"""Predictions of regressions: their columns in files, fields of `tagger(events)`, and what is bad."""

import json

import awkward as ak
import numpy as np
import pytest
from regression_taggers import CORRECTED, PREDICTED, TASKS, predictions_one_by_one, regression_tagger

import partt
from jets import CLASSES, make_jets, write_jets
from partt.cli.main import main
from partt.data.files.tables import inspect_file, write_table
from partt.data.jagged import Jagged, to_awkward
from partt.errors import DataError
from partt.model.tasks import Task
from partt.scores.origin import read_provenance
from partt.tagger.tagger_file import save_tagger
from prediction_jobs import columns, one_by_one

MASS = Task(name="m", kind="value", target="mass", shift=80.0, scale=10.0, unit="GeV", factor_of="jet_pt")
ONLY_MASS = {"type": "custom", "value": {"mass": "jet_sdmass"}}  # no classes


@pytest.fixture(scope="module")
def tagger():
    return regression_tagger()


def close(found, expected, name):
    size = np.nanmax(np.abs(expected))  # differences of large numbers may be small
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * size, err_msg=name)


@pytest.mark.parametrize("suffix", [".root", ".parquet"])
def test_every_kind_is_written_in_units(tagger, tmp_path, suffix):
    jets = make_jets(40)
    write_table(tmp_path / "jets.root", jets)
    out = tmp_path / f"scores{suffix}"
    result = partt.predict(tagger, tmp_path / "jets.root", out, num_threads=1)
    assert result.balance.scored == 40
    found = columns(out)
    scores = [f"score_{name}" for name in CLASSES]
    assert list(found)[: 20 + len(PREDICTED) + 5] == [
        *scores, *(f"label_{name}" for name in CLASSES), *PREDICTED, CORRECTED,
        "true_factor", "true_mass", "true_ln_pt", "true_energy",
    ]  # fmt: skip
    for name, values in predictions_one_by_one(tagger, jets).items():
        close(found[name], values, name)
    close(np.stack([found[name] for name in scores], axis=1), one_by_one(tagger, jets), "scores")
    close(found[CORRECTED], found["factor"] * found["jet_mass"], CORRECTED)
    close(found["true_mass"], np.where(jets["jet_nparticles"] > 20, jets["jet_sdmass"], np.nan), "true mass")
    close(found["true_energy"], 1000 * jets["jet_energy"], "true energy")
    assert found["mass"].dtype == found["true_mass"].dtype == np.float32
    provenance = read_provenance(str(out))
    assert provenance.tasks == TASKS
    summary = json.loads((tmp_path / "predict.json").read_text())
    assert [task["name"] for task in summary["regressions"]] == [task.name for task in TASKS[1:]]
    assert summary["regressions"][1]["unit"] == "GeV"
    again = partt.predict(tagger, tmp_path / "jets.root", out, num_threads=1)
    assert again.outputs[0].was_complete


def test_true_values_are_written_where_the_input_has_them(tagger, tmp_path):
    jets = make_jets(20)
    jets["jet_sdmass"][3] = np.inf
    write_table(tmp_path / "some.root", {name: jets[name] for name in jets if name != "jet_nparticles"})
    write_table(tmp_path / "none.root", {name: jets[name] for name in jets if "label" not in name})
    partt.predict(tagger, [tmp_path / "none.root"], tmp_path / "a", num_threads=1)
    partt.predict(tagger, [tmp_path / "some.root"], tmp_path / "b", num_threads=1)
    some, none = columns(tmp_path / "b" / "some.root"), columns(tmp_path / "a" / "none.root")
    assert "true_mass" not in some  # its mask is missing
    assert np.flatnonzero(np.isnan(some["true_factor"])).tolist() == [3]
    assert not some["bad"].any()  # an unknown true value is no fault of the jet
    assert not [name for name in none if name.startswith(("label_", "score_label"))]
    assert "true_mass" in none


def test_a_file_without_the_variable_of_a_factor(tagger, tmp_path):
    jets = make_jets(5)
    del jets["jet_eta"]  # jet_mass needs it
    write_table(tmp_path / "jets.root", jets)
    with pytest.raises(DataError, match="lacks branches that the data config needs: jet_eta"):
        partt.predict(tagger, tmp_path / "jets.root", tmp_path / "scores", num_threads=1)


def test_a_jet_with_any_output_that_is_not_finite_is_bad(tmp_path):
    """A width that overflows, an infinite input, and a factor of something that is not known."""
    tagger = regression_tagger()
    jets = make_jets(30)
    before = predictions_one_by_one(tagger, jets)
    log_variances = 2 * np.log((before["mass_high"] - before["mass"]) / 12)
    limit = 2 * np.log(np.finfo(np.float32).max / 12)  # which half of the jets exceed
    tagger.network.heads["mass"].output.bias.data[1] += limit - np.median(log_variances)
    px = jets["part_px"].contents.copy()
    filled = int(np.flatnonzero(jets["part_px"].lengths)[0])
    px[jets["part_px"].offsets[filled]] = np.inf
    jets["part_px"] = Jagged(px, jets["part_px"].offsets)
    jets["jet_eta"] = np.where(np.arange(30) == 25, np.nan, jets["jet_eta"]).astype(np.float32)
    expected = predictions_one_by_one(tagger, jets)["mass_high"]
    write_table(tmp_path / "jets.root", jets)
    result = partt.predict(tagger, tmp_path / "jets.root", tmp_path / "scores.root", num_threads=1)
    found = columns(tmp_path / "scores.root")
    bad = ~(expected < np.finfo(np.float32).max)
    bad[[filled, 25]] = True
    assert 2 < bad.sum() < 30
    np.testing.assert_array_equal(found["bad"], bad)
    for name in ("score_QCD", "mass", "energy_Hbb", CORRECTED):
        np.testing.assert_array_equal(np.isnan(found[name]), bad, err_msg=name)
    balance = result.balance
    assert (balance.scored, balance.bad) == (30 - bad.sum(), bad.sum())


def test_only_a_regression(tmp_path, capsys):
    tagger = regression_tagger(tasks=(MASS,), **ONLY_MASS)
    save_tagger(tmp_path / "tagger.safetensors", tagger)
    write_jets(tmp_path / "jets.root", 25)
    command = ["predict", str(tmp_path / "jets.root"), "--tagger", str(tmp_path / "tagger.safetensors")]
    assert main([*command, "--out", str(tmp_path / "scores.root"), "--threads", "1"]) == 0
    assert "m (GeV)" in capsys.readouterr().out
    found = columns(tmp_path / "scores.root")
    assert not [name for name in found if name.startswith(("score_", "label_"))]
    close(found["jet_pt_corrected"], found["m"] * found["jet_pt"], "corrected")
    assert np.isfinite(found["m"]).all()
    assert "jet_sdmass" in inspect_file(str(tmp_path / "scores.root")).branches
    assert main([*command, "--out", str(tmp_path / "x.root"), "--discriminant", "Hbb_vs_QCD"]) == 2
    assert "the tagger has no class 'Hbb'" in capsys.readouterr().err
    export = ["export-weaver", str(tmp_path / "tagger.safetensors"), "--out", str(tmp_path / "x.pt")]
    assert main(export) == 3
    assert "has regressions (m), and weaver-core's networks only classes" in capsys.readouterr().err


def test_classes_that_are_not_learned_have_no_columns(tmp_path):
    """The data config has classes, but the tagger has none."""
    tagger = regression_tagger(tasks=(MASS,))
    assert tagger.class_names == ()
    save_tagger(tmp_path / "tagger.safetensors", tagger)
    write_jets(tmp_path / "jets.root", 5)
    partt.predict(tmp_path / "tagger.safetensors", tmp_path / "jets.root", tmp_path / "scores.root")
    found = columns(tmp_path / "scores.root")
    assert list(found)[:3] == ["m", "jet_pt_corrected", "true_mass"]


@pytest.mark.parametrize("counts", [None, [7, 0, 23]])
def test_fields_of_events_are_the_columns(tagger, monkeypatch, counts):
    monkeypatch.setattr("partt.tagger.tagger.JETS_AT_ONCE", 16)
    jets = make_jets(30)
    events = ak.Array({name: to_awkward(column) for name, column in jets.items() if "label" not in name})
    found = tagger(events if counts is None else ak.unflatten(events, counts))
    assert found.fields == [*CLASSES, *PREDICTED, CORRECTED]
    for name, values in predictions_one_by_one(tagger, jets).items():
        close(ak.to_numpy(found[name] if counts is None else ak.flatten(found[name])), values, name)
    assert tagger(events[:0]).fields == found.fields
