"""Exported files have the scores of torch and weaver-core; what cannot be exported is an error."""

import json
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml

from exported_taggers import CASES, dense, some, tagger_to_export, weaver_session, wrapped
from jets import write_jets
from partt.cli.main import main
from partt.data.config.data_config import load_data_config
from partt.data.files.tables import read_columns
from partt.data.formulas.definitions import parse_definitions
from partt.data.formulas.expressions import parse_formula
from partt.data.jagged import Column, Jagged
from partt.data.variables import Variables
from partt.errors import ConfigError, DataError, NumericalError
from partt.exporting import export as export_module
from partt.exporting import proof
from partt.exporting.export import export
from partt.exporting.formulas import TorchVariables
from partt.exporting.preprocess_json import preprocess_json
from partt.model.tasks import classes_task
from partt.prediction.predict import predict
from partt.tagger.loading import load_tagger
from partt.tagger.onnx_file import load_onnx_tagger, run_session
from partt.tagger.onnx_inputs import feeder, session_axes
from partt.tagger.tagger_file import save_tagger
from small_networks import variables_of

TOLERANCE = 1e-5


# --- the same scores ------------------------------------------------------------------------------------


# Formulas and network are parts of the graph that do not depend on each other: most networks have one kind of input.
KINDS = dict.fromkeys(CASES, "raw") | dict.fromkeys(("part_xs", "slim_m", "pcnn", "lstm"), "standardised")


@pytest.mark.slow
@pytest.mark.parametrize(("case", "inputs"), [*KINDS.items(), ("pfn", "standardised")])
def test_scores_are_torchs_for_all_lengths_and_mixes(case, inputs, exported):
    tagger, result = exported(case, inputs)
    assert 0 < result.header.largest_difference < TOLERANCE
    variables = variables_of(tagger)
    expected = proof.torch_scores(tagger, variables.branches).probabilities
    loaded = load_onnx_tagger(result.path)
    np.testing.assert_allclose(loaded.tag(variables).probabilities, expected, rtol=0, atol=TOLERANCE)
    jets = feeder(inputs, tagger.data_config, variables, session_axes(loaded.session))
    for batch in ([0], [7], np.arange(40), np.flatnonzero(jets.lengths == 0)):
        scores = run_session(loaded.session, jets.feed(np.asarray(batch))).probabilities
        np.testing.assert_allclose(scores, expected[batch], rtol=0, atol=TOLERANCE)


def test_pair_features_that_depend_on_the_order(tmp_path):
    tagger = tagger_to_export(settings={"pair_features": "xyzt", "num_blocks": 1})
    result = export(tagger, tmp_path / "m.onnx", inputs="standardised")
    assert 0 < result.header.largest_difference < TOLERANCE


@pytest.mark.parametrize("case", ["part", "part_plain"])
def test_weavers_own_export_of_the_same_weights_agrees(case, tmp_path):
    tagger = tagger_to_export(case)
    variables = variables_of(tagger)
    session = weaver_session(tagger, tmp_path)
    jets = feeder("standardised", tagger.data_config, variables, session_axes(session))
    filled = np.flatnonzero(jets.lengths > 0)  # an empty jet has no particle to pad with
    scores = run_session(session, wrapped(jets.feed(filled))).probabilities
    expected = proof.torch_scores(tagger, some(variables, filled)).probabilities
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)


def test_numbers_that_are_not_finite(exported):
    """NaN features become 0; infinite features, and NaN or infinite momenta, make a jet bad: as in predict."""
    tagger, result = exported("part")
    variables = variables_of(tagger, num_jets=60)
    lengths = variables.branches["part_px"].lengths
    jets = np.flatnonzero((lengths > 2) & (lengths < 100))[:5]
    columns = some(variables, jets)
    first = columns["part_px"].offsets[:-1]
    columns["part_charge"].contents[first[0]] = np.nan
    columns["part_charge"].contents[first[1]] = np.inf
    columns["part_px"].contents[first[2]] = np.nan
    columns["part_d0err"].contents[first[3]] = np.inf  # clipped
    expected = proof.torch_scores(tagger, columns).probabilities
    assert np.isnan(expected).any(axis=1).tolist() == [False, True, True, False, False]
    session = load_onnx_tagger(result.path).session
    names = [item.name for item in session.get_inputs() if item.name != "num_particles"]
    scores = run_session(session, dense(columns, names, 128)).probabilities
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)


def test_a_program_with_numpy_and_onnxruntime_only_gets_the_scores_of_predict(exported, tmp_path):
    tagger, result = exported("pfn")
    save_tagger(tmp_path / "tagger.safetensors", tagger)
    write_jets(tmp_path / "jets.root", 30)
    predict(tmp_path / "tagger.safetensors", tmp_path / "jets.root", tmp_path / "scores.root", num_threads=1)
    program = """
import sys
import numpy as np, onnxruntime, uproot
session = onnxruntime.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
tree = uproot.open("jets.root")["tree"]
counts = tree["part_px"].array(library="np")
counts = np.array([len(values) for values in counts])
slots = int(counts.max())
feed = {"num_particles": counts.astype(np.float32)}
for item in session.get_inputs():
    if item.name != "num_particles":
        values = tree[item.name].array(library="np")
        if len(item.shape) == 2:
            values = np.array([np.pad(np.asarray(v, np.float32), (0, slots - len(v))) for v in values])
        feed[item.name] = values.astype(np.float32)
names = [item.name for item in session.get_outputs()]
np.savez("scores.npz", **dict(zip(names, session.run(names, feed))))
assert not any(name.split(".")[0] in {"partt", "torch"} for name in sys.modules)
"""
    shutil.copy(result.path, tmp_path / "m.onnx")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    scores = np.load(tmp_path / "scores.npz")
    expected = read_columns(str(tmp_path / "scores.root"), list(scores))
    assert set(scores) == {f"score_{name}" for name in tagger.class_names}
    for name in scores:
        np.testing.assert_allclose(scores[name], expected[name], rtol=0, atol=TOLERANCE)


def test_predict_engine_onnx_gives_what_torch_gives(exported, tmp_path, capsys):
    """In order, with NaN for jets that are not selected, and with observers."""
    tagger = tagger_to_export("pfn", selection="jet_pt > 100")
    save_tagger(tmp_path / "tagger.safetensors", tagger)
    jets = str(write_jets(tmp_path / "jets.root", 120))
    model = str(tmp_path / "m.onnx")
    assert main(["export", str(tmp_path / "tagger.safetensors"), "--out", model]) == 0
    assert "score" in capsys.readouterr().out
    arguments = ["predict", jets, "--threads", "2", "--discriminant", "Hbb_vs_QCD"]
    torch_way = ["--tagger", str(tmp_path / "tagger.safetensors"), "--out", str(tmp_path / "t.root")]
    assert main([*arguments, *torch_way]) == 0
    onnx_way = ["--engine", "onnx", "--tagger", model, "--out", str(tmp_path / "o.root")]
    assert main([*arguments, *onnx_way]) == 0
    names = [f"score_{name}" for name in tagger.class_names] + ["Hbb_vs_QCD", "selected", "bad"]
    names += ["source_entry", "jet_pt", "label_QCD"]
    expected, found = (read_columns(str(tmp_path / name), names) for name in ("t.root", "o.root"))
    assert 0 < expected["selected"].sum() < 120
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=TOLERANCE, err_msg=name)
    assert json.loads((tmp_path / "predict.json").read_text())["versions"]["onnxruntime"]


# --- formulas -------------------------------------------------------------------------------------------

FORMULAS = {
    "v_arithmetic": "-(part_px + 2 * part_py - jet_pt / 3) ** 2 % 7 // 2",
    "v_integers": "(np.abs(part_isMuon - 2) == 2) * 0.2 + part_isPhoton / 3 + (part_isMuon // 2) + ~part_isMuon",
    "v_logic": "((part_px > 0) & ~(part_py > 0)) | (part_charge != 0) ^ (part_pz <= 1)",
    "v_functions": "np.arctan2(part_py, part_px) + np.hypot(part_px, part_pz) + np.arctanh(np.tanh(part_d0val))",
    "v_more": "np.log1p(np.abs(part_px)) + np.sinh(part_deta) + np.arcsinh(part_pz) + np.sqrt(part_energy)",
    "v_choice": "np.where(part_px > 1, np.maximum(part_py, 0), np.minimum(part_pz, jet_pt))",
    "v_clean": "np.nan_to_num(np.log(part_px), nan=-1) + np.clip(part_pz, -3, 3) + np.rint(part_px)",
    "v_none": "part_energy * jet_pt[:, None] + ak.values_astype(part_px, 'int32')",
    "v_sums": "part_energy / ak.sum(part_energy, axis=1) + ak.mean(part_px, axis=1) + ak.std(part_py, axis=1)",
    "v_counts": "ak.num(part_px) + ak.sum(part_px > 0, axis=1) + ak.any(part_px > 9, axis=1) + part_px * 0",
    "p4": "_p4_from_ptetaphim(np.hypot(part_px, part_py), part_deta, part_dphi, part_energy * 0 + 0.14)",
    "v_momenta": "p4.energy + p4.px + p4.pz + p4.mass + p4.p + p4.rapidity",
    "jet": "_p4_from_ptetaphie(jet_pt, jet_eta, jet_phi, jet_energy)",
    "v_distances": "p4.deltaR(jet) + p4.deltaphi(jet) + p4.deltaeta(jet)",
    "order": "ak.argsort(part_energy, axis=-1, ascending=False)",
    "v_sorted": "part_px[order] + part_py[ak.argsort(part_px)] + ak.sort(part_pz) + p4[order].energy",
    "v_bins": "np.digitize(part_px, [0, 1, 5]) + np.searchsorted([0, 1, 5], part_py) + np.isin(part_charge, [-1, 2])",
}
# These are traced to operations that the others have as well.
MORE_FORMULAS = {
    "v_components": "p4.x + p4.y + p4.z + p4.t + p4.E + p4.m + p4.rho + p4.pt2 + p4.m2 + p4.mt + p4.et + p4.beta",
    "v_added": "(p4 + 2 * jet).mass + (jet - p4).pt + (-p4 / 2).pz + ak.sum(p4, axis=1).energy",
    "v_positions": "ak.local_index(part_px) + part_px",
    "v_axes": "np.squeeze(jet_pt) * part_px + jet_pt[:, np.newaxis] + np.expand_dims(jet_eta, 1) + part_px",
    "v_lists": "np.logical_or.reduce([part_px > 1, part_py > 1, jet_pt > 600]) + np.float32(part_charge)",
    "v_flags": "(part_px > 0) * 2 + 3 * (part_py > 0) + np.maximum(part_pz > 0, 4) + ((part_px > 1) == 1)",
    "v_fast": "_p4_from_ptetaphim(part_px * 0 + 500, part_deta, part_dphi, part_px * 0 + 0.14).mass2",
    "v_old": "awkward.JaggedArray.ones_like(part_px) + abs(part_px) + np.isclose(part_px, part_py, atol=0.5)",
}


def test_formulas_in_torch_are_numpys():
    """Every formula, on jets of the sample with padding."""
    rng = np.random.default_rng(0)
    lengths = np.array([3, 1, 5, 0, 4])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    formulas = parse_definitions(FORMULAS | MORE_FORMULAS)
    names = set().union(*(formula.names for formula in formulas.values())) - formulas.keys()
    jets: dict[str, Column] = {}
    for name in sorted(names):
        values = rng.normal(0, 3, 5 if name.startswith("jet") else 13).astype(np.float32)
        if name.startswith("part_is"):
            values = rng.integers(0, 2, 13).astype(np.int32)
        values = np.abs(values) + 10 if "energy" in name else values
        jets[name] = values if name.startswith("jet") else Jagged(values, offsets)
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]

    def padded(column: Column) -> torch.Tensor:
        if not isinstance(column, Jagged):
            return torch.tensor(column)
        grid = torch.zeros(mask.shape, dtype=torch.tensor(column.contents).dtype)
        grid[mask] = torch.tensor(column.contents)
        return grid

    columns = {name: formula for name, formula in formulas.items() if not formula.is_momenta}
    variables = Variables(jets, columns, "jets", np.arange(5))
    axis_of = {name: "particles" for name, column in jets.items() if isinstance(column, Jagged)}
    in_torch = TorchVariables(
        {name: padded(column) for name, column in jets.items()}, columns, axis_of, {"particles": mask}
    )
    for name in columns:
        expected, found = variables[name], in_torch[name]
        assert isinstance(expected, Jagged)
        np.testing.assert_allclose(found[mask], expected.contents, rtol=2e-5, atol=2e-5, err_msg=name)


def test_formulas_are_numpys():
    """Every kind of formula, as features of a network that only adds them up."""
    names = [name for name in FORMULAS if name.startswith("v_")]
    base = yaml.safe_load(load_data_config("jetclass_kin").to_yaml())
    base["new_variables"] |= FORMULAS
    base["inputs"]["pf_features"]["vars"] = [[name, 0, 0.1] for name in names]
    config = type(load_data_config("jetclass_kin")).model_validate(base)
    tagger = tagger_to_export("pfn")
    from dataclasses import replace

    from partt.exporting.tracing import trace
    from partt.model.registry import build_network, network_config
    from partt.tagger.onnx_file import new_session

    network = build_network(
        "pfn", network_config("pfn"), config.input_shape, tagger.network.head_sizes
    ).eval()
    tagger = replace(tagger, network=network, data_config=config)
    session = new_session(trace(tagger, "raw", 18).SerializeToString())
    assert proof.largest_differences(tagger, "raw", session).of_scores < TOLERANCE


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("np.squeeze(part_px)", "np.squeeze"),
        ("part_px[part_px < 1e9]", "the only indices that can be exported"),
        ("part_px[:, 0]", "the only indices that can be exported"),
        ("jet_flag >> 1", "the operator RShift is not available"),
        ("np.max([part_px, part_px], axis=0)", "np.max"),
        ("ak.concatenate([part_px, part_px], axis=1)", "ak.concatenate is not available"),
        ("np.select([part_px > 0], [part_px])", "np.select is not available"),
        ("_pad(part_px, 3)", "_pad is not available"),
    ],
)
def test_what_torch_cannot_compute(formula, words):
    branches = {"part_px": torch.ones(2, 3), "jet_flag": torch.ones(2, dtype=torch.int32)}
    axis_of = {name: "particles" for name, column in branches.items() if column.ndim == 2}
    masks = {"particles": torch.ones(2, 3, dtype=torch.bool)}
    variables = TorchVariables(branches, {"x": parse_formula(formula)}, axis_of, masks)
    with pytest.raises(ConfigError) as caught:
        variables["x"]
    assert all(text in str(caught.value) for text in ("x: ", formula, words, "--inputs standardised"))


@pytest.mark.parametrize("formula", ["part_px[part_px < 1e9]", "ak.fill_none(part_px, 0)"])
def test_a_formula_that_cannot_be_exported_is_named(formula, tmp_path):
    definitions = {**load_data_config("jetclass_full").new_variables, "part_d0": formula}
    with pytest.raises(ConfigError, match="part_d0.*cannot be exported.*--inputs standardised"):
        export(tagger_to_export("pfn", new_variables=definitions), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


# --- metadata -------------------------------------------------------------------------------------------


def test_the_file_says_what_it_is(exported):
    tagger, result = exported("pfn")
    model = onnx.load(result.path)
    session = onnxruntime.InferenceSession(result.path, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["class_names"]) == list(tagger.class_names)
    assert json.loads(metadata["units"])["part_px"] == "GeV"
    assert (
        json.loads(metadata["versions"])["torch"] == torch.__version__.partition("+")[0]
        or "+" in metadata["versions"]
    )
    assert float(metadata["largest_difference"]) == result.header.largest_difference
    assert len(metadata["tagger_sha256"]) == 64
    assert {item.name: item.shape for item in session.get_inputs()}["part_px"] == ["jets", "particles"]
    assert [item.name for item in session.get_outputs()] == [f"score_{name}" for name in tagger.class_names]
    assert all(item.type == "tensor(float)" for item in session.get_inputs())
    assert str(result.path.parent).encode() not in result.path.read_bytes()  # nothing of this machine
    assert b"/partt/" not in result.path.read_bytes()
    assert model.opset_import[0].version == 20


def test_preprocess_json_is_weavers(exported, tmp_path):
    from weaver.utils.data.config import DataConfig as WeaverConfig

    _, result = exported("pfn", "standardised")
    names = ("jetclass_full", "jetclass_kin", "top_landscape_kin", "quark_gluon_kinpidplus")
    for name in names:
        config = load_data_config(name)
        (tmp_path / f"{name}.yaml").write_text(config.to_yaml())
        weaver = WeaverConfig.load(
            str(tmp_path / f"{name}.yaml"), load_observers=False, load_reweight_info=False
        )
        weaver.export_json(str(tmp_path / "weaver.json"))
        assert json.loads(
            json.dumps(preprocess_json(config, [classes_task(len(config.class_names))]))
        ) == json.loads((tmp_path / "weaver.json").read_text())
    written = json.loads((result.path.parent / "preprocess.json").read_text())
    session = onnxruntime.InferenceSession(result.path, providers=["CPUExecutionProvider"])
    assert written["input_names"] == [item.name for item in session.get_inputs()]
    assert [item.name for item in session.get_outputs()] == ["softmax"]


# --- faults ---------------------------------------------------------------------------------------------


def test_a_mismatch_means_no_file(exported, tmp_path, monkeypatch):
    tagger, result = exported("pfn")
    monkeypatch.setattr(export_module, "trace", lambda *_: onnx.load(result.path))  # it takes seconds
    monkeypatch.setattr(proof, "TOLERANCE", 1e-12)
    with pytest.raises(NumericalError, match="differ from torch's by up to .* no file is written"):
        export(tagger, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_external_data_is_refused(exported, tmp_path):
    _, result = exported("pfn")
    model = onnx.load(result.path)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    with pytest.raises(DataError, match="m.onnx keeps weights in other files"):
        load_onnx_tagger(tmp_path / "m.onnx")


def test_damaged_and_foreign_files_are_refused(exported, tmp_path):
    _, result = exported("pfn")
    contents = result.path.read_bytes()
    path = tmp_path / "m.onnx"
    path.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(DataError, match="m.onnx"):
        load_onnx_tagger(path)
    model = onnx.load(result.path)
    weight = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weight.raw_data = weight.raw_data[:-1] + bytes([weight.raw_data[-1] ^ 1])
    onnx.save(model, path)
    with pytest.raises(DataError, match="damaged"):
        load_onnx_tagger(path)
    model.producer_name = "pytorch"
    onnx.save(model, path)
    with pytest.raises(DataError, match="not made by `partt export`"):
        load_onnx_tagger(path)
    path.write_text("<html>")
    with pytest.raises(DataError, match="not an ONNX file"):
        load_onnx_tagger(path)
    with pytest.raises(DataError, match="cannot read .*missing.onnx"):
        load_onnx_tagger(tmp_path / "missing.onnx")


def test_wrong_requests(exported, tmp_path, capsys, monkeypatch):
    _, result = exported("pfn")
    save_tagger(tmp_path / "tagger.safetensors", tagger_to_export("pfn"))
    tagger = str(tmp_path / "tagger.safetensors")
    out = str(tmp_path / "m.onnx")
    for arguments, code, message in [
        (["export", tagger, "--out", "model.pt"], 2, "ends in .onnx"),
        (["export", tagger, "--out", out, "--opset", "9"], 2, "--opset 9: give a number from 18"),
        (["export", str(tmp_path / "no.safetensors"), "--out", out], 3, "no.safetensors"),
        (["predict", "x.root", "--engine", "onnx", "--tagger", tagger], 2, "--engine onnx runs files of"),
        (
            ["predict", "x.root", "--engine", "torch", "--tagger", str(result.path)],
            2,
            "use --engine onnx",
        ),
        (["predict", "x.root", "--device", "cuda", "--tagger", str(result.path)], 2, "on the CPU"),
        (["predict", "x.root", "--embeddings", "--tagger", str(result.path)], 2, "no embeddings"),
    ]:
        assert main(arguments) == code, arguments
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", tagger, "--out", out]) == 2
    assert "onnx is missing: pip install 'partt[export]'" in capsys.readouterr().err
    assert load_tagger(tagger)
    assert not (tmp_path / "m.onnx").exists()
