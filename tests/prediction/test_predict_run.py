"""Every entry once, in order, with the score it has alone, for any number of files, jets and threads."""

import json

import awkward as ak
import numpy as np
import pytest
import torch
import uproot

import partt
from conftest import FIXTURES
from jets import CLASSES, make_jets, write_jets
from partt.data.files.tables import inspect_file, read_columns, write_table
from partt.data.jagged import Jagged, to_awkward
from partt.errors import ConfigError, DataError
from partt.prediction import opened_files
from prediction_jobs import assert_same_columns, columns, one_by_one, saved_tagger, scores_of
from small_networks import SMALL, make_tagger

CHUNK = 16


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(opened_files, "CHUNK_ENTRIES", CHUNK)


@pytest.fixture(scope="module")
def tagger():
    return make_tagger()


def jets_without_labels(num_jets, seed=0):
    return {name: column for name, column in make_jets(num_jets, seed=seed).items() if "label" not in name}


@pytest.mark.parametrize("num_jets", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
@pytest.mark.parametrize("suffix", [".root", ".parquet"])
def test_every_entry_once_in_order_with_the_score_it_has_alone(tagger, tmp_path, num_jets, suffix):
    jets = jets_without_labels(num_jets)
    write_table(tmp_path / "jets.root", jets)
    result = partt.predict(tagger, tmp_path / "jets.root", tmp_path / f"scores{suffix}")
    assert result.balance.entries == result.balance.scored == num_jets
    out = tmp_path / f"scores{suffix}"
    assert inspect_file(str(out)).num_entries == num_jets
    found = columns(out)
    np.testing.assert_array_equal(found["source_entry"], np.arange(num_jets))
    np.testing.assert_array_equal(found["jet_pt"], jets["jet_pt"])
    np.testing.assert_allclose(scores_of(out, tagger), one_by_one(tagger, jets), atol=1e-5, rtol=0)
    assert not any(name.startswith("label_") for name in found)


def test_several_files_with_empty_ones_between(tagger, tmp_path):
    sizes = {"a": 20, "b": 0, "c": 1, "d": CHUNK, "e": 0}
    for seed, (name, size) in enumerate(sizes.items()):
        write_jets(tmp_path / f"{name}.root", size, seed=seed)
    result = partt.predict(tagger, str(tmp_path / "*.root"), tmp_path / "out")
    assert [output.path.name for output in result.outputs] == [f"{name}.root" for name in sizes]
    for seed, (name, size) in enumerate(sizes.items()):
        out = tmp_path / "out" / f"{name}.root"
        assert inspect_file(str(out)).num_entries == size
        jets = make_jets(size, seed=seed)
        np.testing.assert_allclose(scores_of(out, tagger), one_by_one(tagger, jets), atol=1e-5, rtol=0)
        labels = columns(out, *(f"label_{name}" for name in CLASSES))
        for label, values in labels.items():
            np.testing.assert_array_equal(values, jets[label])


@pytest.mark.parametrize("threshold", [0.0, 60.0, 1e9], ids=["all", "some", "none"])
def test_jets_that_are_not_selected(tmp_path, threshold):
    tagger = make_tagger(test_time_selection=f"jet_pt > {threshold}")
    path = write_jets(tmp_path / "jets.root", 40)
    jets = make_jets(40)
    expected = jets["jet_pt"] > threshold
    assert 0 < expected.sum() < 40 or threshold != 60.0
    result = partt.predict(tagger, path, tmp_path / "all", discriminants=["Hbb_vs_QCD"])
    assert result.balance.scored == expected.sum()
    assert result.balance.not_selected == 40 - expected.sum()
    found = columns(tmp_path / "all" / "jets.root")
    np.testing.assert_array_equal(found["selected"], expected)
    alone = one_by_one(tagger, jets)
    alone[~expected] = np.nan
    scores = scores_of(tmp_path / "all" / "jets.root", tagger)
    np.testing.assert_allclose(scores, alone, atol=1e-5, rtol=0)
    assert np.isnan(found["Hbb_vs_QCD"][~expected]).all()
    np.testing.assert_array_equal(found["jet_pt"], jets["jet_pt"])

    result = partt.predict(tagger, path, tmp_path / "some", apply_selection=True, keep=["part_px"])
    assert result.balance.not_selected == 40 - expected.sum()
    found = columns(tmp_path / "some" / "jets.root")
    np.testing.assert_array_equal(found["source_entry"], np.flatnonzero(expected))
    np.testing.assert_allclose(scores_of(tmp_path / "some" / "jets.root", tagger), alone[expected], atol=1e-5)
    np.testing.assert_array_equal(found["part_px"].lengths, jets["part_px"].lengths[expected])


def test_bad_jets_get_nan_and_a_flag(tagger, tmp_path):
    jets = make_jets(40)
    energy = jets["part_energy"].contents.copy()
    energy[jets["part_energy"].offsets[7]] = np.inf
    path = write_jets(tmp_path / "j.root", 40, part_energy=Jagged(energy, jets["part_energy"].offsets))
    result = partt.predict(tagger, path, tmp_path / "out")
    assert (result.balance.scored, result.balance.bad) == (39, 1)
    found = columns(tmp_path / "out" / "j.root")
    assert np.flatnonzero(found["bad"]).tolist() == [7]
    assert found["selected"].all()
    scores = scores_of(tmp_path / "out" / "j.root", tagger)
    assert np.flatnonzero(np.isnan(scores).any(axis=1)).tolist() == [7]
    expected = one_by_one(tagger, jets)
    np.testing.assert_allclose(np.delete(scores, 7, axis=0), np.delete(expected, 7, axis=0), atol=1e-5)


def test_threads_change_nothing(tagger, tmp_path):
    path = write_jets(tmp_path / "jets.root", 100)
    for threads in (1, 3):
        partt.predict(tagger, path, tmp_path / f"{threads}.root", num_threads=threads, embeddings=True)
    assert_same_columns(tmp_path / "1.root", tmp_path / "3.root")


def test_progress_reaches_the_end(tagger, tmp_path):
    path = write_jets(tmp_path / "jets.root", 50)
    seen = []
    partt.predict(tagger, path, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (50, 50)
    assert sorted(seen) == seen


def test_the_schema_of_an_output(tmp_path):
    """The columns, their order and their types are a contract."""
    tagger = make_tagger(observers=("jet_pt", "jet_nparticles"))
    path = write_jets(tmp_path / "jets.root", 20, event=np.arange(20, dtype=np.uint64))
    options = {"discriminants": ["Hbb_vs_QCD", "Hbb+Hcc_vs_QCD"], "keep": ["event", "part_p[xy]"]}
    partt.predict(tagger, path, tmp_path / "scores.root", embeddings=True, **options)
    with uproot.open(tmp_path / "scores.root") as file:
        assert file.classnames() == {"tree;1": "TTree", "partt;1": "TObjString"}
        types = {name: branch.typename for name, branch in file["tree"].items()}
        source = file["tree"]["source_file"].array()
    assert types == {
        **{f"score_{name}": "float" for name in CLASSES},
        "Hbb_vs_QCD": "float",
        "Hbb_Hcc_vs_QCD": "float",
        **{f"label_{name}": "int32_t" for name in CLASSES},
        "jet_pt": "float",
        "jet_nparticles": "float",
        "event": "uint64_t",
        "npart": "int32_t",
        "part_px": "float[]",
        "part_py": "float[]",
        "embedding": "float[16]",
        "selected": "bool",
        "bad": "bool",
        "source_file": "char*",
        "source_entry": "int64_t",
    }
    assert [name for name in types if name.startswith("score_")] == [f"score_{name}" for name in CLASSES]
    assert ak.all(source == str(path))
    found = columns(tmp_path / "scores.root")
    np.testing.assert_array_equal(found["event"], np.arange(20))
    scores = scores_of(tmp_path / "scores.root", tagger)
    np.testing.assert_allclose(found["Hbb_vs_QCD"], scores[:, 1] / (scores[:, 0] + scores[:, 1]), rtol=1e-5)
    both = scores[:, 1] + scores[:, 2]
    np.testing.assert_allclose(found["Hbb_Hcc_vs_QCD"], both / (scores[:, 0] + both), rtol=1e-5)

    partt.predict(tagger, path, tmp_path / "scores.parquet", embeddings=True, **options)
    parquet = inspect_file(str(tmp_path / "scores.parquet"))
    assert set(parquet.branches) == set(types) - {"npart"}
    for name, column in columns(tmp_path / "scores.parquet").items():
        expected = found[name]
        np.testing.assert_array_equal(
            getattr(column, "contents", column), getattr(expected, "contents", expected)
        )


def test_predict_json(tmp_path):
    tagger = saved_tagger(tmp_path / "t.safetensors")
    for name in "ab":
        write_jets(tmp_path / f"{name}.root", 20)
    result = partt.predict(tmp_path / "t.safetensors", tmp_path / "a.root", tmp_path / "out")
    assert result.outputs[0].path == tmp_path / "out" / "a.root"
    partt.predict(tagger, [tmp_path / "b.root"], tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "predict.json").read_text())
    assert summary["tagger_sha256"] == tagger.sha256
    assert summary["class_names"] == list(CLASSES)
    assert summary["versions"]["partt"] == partt.__version__
    assert summary["jets_per_second"] > 0
    assert summary["balance"] == {"events": 0, "entries": 40, "scored": 40, "not_selected": 0, "bad": 0}
    files = {item["output"]: item["input"] for item in summary["outputs"]}
    assert files == {"a.root": str(tmp_path / "a.root"), "b.root": str(tmp_path / "b.root")}


def test_embeddings_are_what_the_last_layer_sees(tagger, tmp_path):
    path = write_jets(tmp_path / "jets.root", 30)
    partt.predict(tagger, path, tmp_path / "out", embeddings=True)
    with uproot.open(tmp_path / "out" / "jets.root") as file:
        embeddings = torch.from_numpy(file["tree"]["embedding"].array(library="np"))
    with torch.inference_mode():
        scores = tagger.network.outputs(embeddings)["classes"].softmax(dim=1)
    np.testing.assert_allclose(scores_of(tmp_path / "out" / "jets.root", tagger), scores, atol=1e-6)


@pytest.mark.parametrize("case", SMALL)
def test_every_network_has_embeddings(case, tmp_path):
    tagger, path = make_tagger(case), write_jets(tmp_path / "jets.root", 20)
    partt.predict(tagger, path, tmp_path / "out", embeddings=True)
    embeddings = columns(tmp_path / "out" / "jets.root", "embedding")["embedding"]
    assert embeddings.contents.reshape(20, -1).shape[1] == tagger.network.backbone.width


# --- what files may look like ---


def test_vectors_written_by_root(tagger, tmp_path):
    path = FIXTURES / "jetclass_vector_layout.root"
    partt.predict(tagger, path, tmp_path / "out", keep=["jet_*", "part_charge"])
    jets = read_columns(str(path), list(inspect_file(str(path)).branches))
    out = tmp_path / "out" / path.name
    np.testing.assert_allclose(scores_of(out, tagger), one_by_one(tagger, jets), atol=1e-5, rtol=0)
    found = columns(out)
    np.testing.assert_array_equal(found["part_charge"].contents, jets["part_charge"].contents)
    np.testing.assert_array_equal(found["label_Hbb"], jets["label_Hbb"])


def test_an_rntuple(tagger, tmp_path):
    jets = make_jets(40)
    with uproot.recreate(tmp_path / "jets.root") as file:
        arrays = {name: to_awkward(column) for name, column in jets.items()}
        ntuple = file.mkrntuple("tree", arrays)
        ntuple.extend({name: array[:0] for name, array in arrays.items()})
    partt.predict(tagger, tmp_path / "jets.root", tmp_path / "out")
    scores = scores_of(tmp_path / "out" / "jets.root", tagger)
    np.testing.assert_allclose(scores, one_by_one(tagger, jets), atol=1e-5, rtol=0)


def test_integer_and_bool_branches(tagger, tmp_path):
    jets = make_jets(40)
    offsets = jets["part_px"].offsets
    jets["part_px"] = Jagged(np.rint(jets["part_px"].contents).astype(np.int16), offsets)
    jets["part_py"] = Jagged(jets["part_py"].contents.astype(np.float64), offsets)
    jets["jet_pt"] = np.rint(jets["jet_pt"]).astype(np.int64)
    jets |= {f"label_{name}": jets[f"label_{name}"] == 1 for name in CLASSES[:5]}
    jets["flag"] = np.arange(40) % 2 == 0
    write_table(tmp_path / "jets.root", jets)
    partt.predict(tagger, tmp_path / "jets.root", tmp_path / "out", keep=["flag"])
    out = tmp_path / "out" / "jets.root"
    np.testing.assert_allclose(scores_of(out, tagger), one_by_one(tagger, jets), atol=1e-5, rtol=0)
    found = columns(out)
    assert found["flag"].dtype == bool
    for name in CLASSES:
        np.testing.assert_array_equal(found[f"label_{name}"], jets[f"label_{name}"])


def test_labels_that_are_computed(tmp_path):
    """`type: custom` gives the class number; a jet with another number has no class."""
    labels = {"type": "custom", "value": {"flavour": "label_Hbb + 2 * label_Hcc - label_Tbl"}}
    tagger = make_tagger(labels={**labels, "names": ["light", "b", "c"]})
    path = write_jets(tmp_path / "jets.root", 60)
    partt.predict(tagger, path, tmp_path / "out")
    found, jets = columns(tmp_path / "out" / "jets.root"), make_jets(60)
    np.testing.assert_array_equal(found["label_b"], jets["label_Hbb"])
    np.testing.assert_array_equal(found["label_c"], jets["label_Hcc"])
    light = (jets["label_Hbb"] + jets["label_Hcc"] + jets["label_Tbl"]) == 0
    np.testing.assert_array_equal(found["label_light"], light)


def test_jets_with_wrong_labels_have_none(tagger, tmp_path):
    jets = make_jets(10)
    flags = {f"label_{name}": jets[f"label_{name}"].copy() for name in CLASSES}
    for values in flags.values():
        values[3] = 0
    flags["label_Hbb"][5] = flags["label_Hcc"][5] = 1
    path = write_jets(tmp_path / "jets.root", 10, **flags)
    partt.predict(tagger, path, tmp_path / "out")
    found = columns(tmp_path / "out" / "jets.root")
    sums = sum(found[f"label_{name}"] for name in CLASSES)
    assert np.flatnonzero(sums == 0).tolist() == [3, 5]
    assert set(sums.tolist()) == {0, 1}


def test_weight_branches_are_carried_along(tmp_path):
    weights = {"use_precomputed_weights": True, "weight_branches": ["generator_weight"]}
    tagger = make_tagger(weights=weights)
    values = np.array([1.0, -0.5, np.nan] * 10, dtype=np.float32)
    path = write_jets(tmp_path / "jets.root", 30, generator_weight=values)
    partt.predict(tagger, path, tmp_path / "out")
    np.testing.assert_array_equal(columns(tmp_path / "out" / "jets.root")["generator_weight"], values)
    unweighted = write_jets(tmp_path / "plain.root", 30)
    assert partt.predict(tagger, unweighted, tmp_path / "plain").left_out == ()


# --- what is carried along ---


def test_observers_that_no_file_has_are_left_out_and_named(tmp_path):
    tagger = make_tagger(observers=("jet_pt", "jet_tau9"))
    path = write_jets(tmp_path / "jets.root", 10)
    result = partt.predict(tagger, path, tmp_path / "out")
    assert result.left_out == ("jet_tau9 (in no file)",)
    summary = json.loads((tmp_path / "out" / "predict.json").read_text())
    assert summary["left_out"] == ["jet_tau9 (in no file)"]
    with_tau = write_jets(tmp_path / "other.root", 10, jet_tau9=np.ones(10, np.float32))
    with pytest.raises(DataError, match=r"jets\.root: tree 'tree' lacks branches.*jet_tau9"):
        partt.predict(tagger, [path, with_tau], tmp_path / "both")


def test_what_keep_may_ask_for(tagger, tmp_path):
    path = write_jets(tmp_path / "jets.root", 10)
    with pytest.raises(ConfigError, match=r"--keep 'jet_ptt' matches no branch \(did you mean 'jet_pt'\?\)"):
        partt.predict(tagger, path, tmp_path / "out", keep=["jet_ptt"])
    result = partt.predict(tagger, path, tmp_path / "out", keep=["*"])
    assert result.left_out == ()
    found = columns(tmp_path / "out" / "jets.root")
    assert set(make_jets(0)) <= set(found)
    again = partt.predict(tagger, tmp_path / "out" / "jets.root", tmp_path / "again", keep=["*"])
    assert "score_QCD (a column of the output has this name)" in again.left_out
    assert "source_file (char*)" in again.left_out
