"""`tagger(events)`: the same scores as from a file, nested like the jets."""

import awkward as ak
import numpy as np
import pytest

import partt
from jets import CLASSES, make_jets
from partt.data.jagged import Jagged, to_awkward
from partt.errors import ConfigError, DataError
from partt.tagger.loading import find_tagger
from partt.tagger.tagger_file import save_tagger
from prediction_jobs import make_tagger, one_by_one


def as_array(jets):
    return ak.Array({name: to_awkward(column) for name, column in jets.items() if "label" not in name})


def stacked(scores):
    flat = ak.flatten(scores) if scores.ndim > 1 else scores
    return np.stack([ak.to_numpy(flat[name]) for name in CLASSES], axis=1)


def test_scores_have_the_nesting_of_the_jets(monkeypatch):
    monkeypatch.setattr("partt.tagger.tagger.JETS_AT_ONCE", 16)
    tagger, jets = make_tagger(), make_jets(50)
    expected = one_by_one(tagger, jets)
    scores = tagger(as_array(jets))
    assert scores.fields == list(CLASSES)
    np.testing.assert_allclose(stacked(scores), expected, atol=1e-5, rtol=0)
    counts = [7, 0, 43]
    nested = tagger(ak.unflatten(as_array(jets), counts))
    assert ak.num(nested).tolist() == counts
    np.testing.assert_allclose(stacked(nested), expected, atol=1e-5, rtol=0)
    assert tagger(as_array(jets)[:0]).type.length == 0


def test_jets_not_selected_or_bad_are_nan():
    tagger, jets = make_tagger(test_time_selection="jet_pt > 60"), make_jets(30)
    px = jets["part_px"].contents.copy()
    px[jets["part_px"].offsets[4]] = np.nan
    jets["part_px"] = Jagged(px, jets["part_px"].offsets)
    jets["jet_pt"][:2], jets["jet_pt"][4] = 50, 70
    expected = (jets["jet_pt"] <= 60) | (np.arange(30) == 4)
    np.testing.assert_array_equal(np.isnan(stacked(tagger(as_array(jets)))).any(axis=1), expected)


def test_masked_jets_are_nan_and_masked_events_stay_masked():
    tagger, jets = make_tagger(), make_jets(12)
    array, keep = as_array(jets), np.arange(12) % 5 != 0
    expected = np.where(keep[:, None], one_by_one(tagger, jets), np.nan)
    np.testing.assert_allclose(stacked(tagger(ak.mask(array, keep))), expected, atol=1e-5, rtol=0)
    events = ak.mask(ak.unflatten(array, [4, 3, 5]), [True, False, True])
    scores = tagger(events)
    assert ak.is_none(scores).tolist() == [False, True, False]
    assert ak.num(ak.drop_none(scores)).tolist() == [4, 5]
    whole = one_by_one(tagger, jets)
    np.testing.assert_allclose(stacked(ak.drop_none(scores)), whole[[*range(4), *range(7, 12)]], atol=1e-5)
    leading = tagger(ak.firsts(ak.unflatten(array, [4, 0, 8])))
    np.testing.assert_allclose(
        stacked(leading), [whole[0], np.full(len(CLASSES), np.nan), whole[4]], atol=1e-5
    )


def test_a_prompt_shows_a_tagger_in_a_line():
    tagger = partt.load_tagger("jetclass-small")
    assert repr(tagger).startswith("<TorchTagger 'jetclass-small': ")
    assert len(repr(tagger)) < 100
    assert "Tbqq" in tagger._repr_html_()


def test_a_network_that_would_learn_is_refused():
    tagger = make_tagger()
    tagger.network.train()
    with pytest.raises(ConfigError, match="call network.eval"):
        tagger(as_array(make_jets(3)))


def test_a_missing_field_is_named():
    with pytest.raises(DataError, match="lack fields .* part_dphi, part_energy, part_px"):
        make_tagger()(as_array({"jet_pt": np.ones(3)}))


# --- what names a tagger ---


def test_a_tagger_is_a_file_a_run_folder_or_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(DataError, match=r"the folder run has no best\.safetensors"):
        partt.load_tagger("run")
    sha256 = save_tagger(tmp_path / "run" / "best.safetensors", make_tagger())
    assert partt.load_tagger("run").sha256 == partt.load_tagger("run/best.safetensors").sha256 == sha256
    name = r"'jetclass-smal' \(did you mean 'jetclass-small'\?\); give one of jetclass-200k, jetclass-small, a tagger file"
    with pytest.raises(ConfigError, match=name):
        find_tagger("jetclass-smal")


def test_predict_is_a_function_however_it_is_imported():
    from partt.prediction.predict import predict

    assert callable(partt.predict)
    assert partt.prediction.predict.predict is predict
    with pytest.raises(TypeError, match="missing 3 required"):
        partt.predict()
