"""Exported taggers with regressions: every output is torch's, in units; names and units are in the file."""

import json

import numpy as np
import onnx
import pytest
from regression_taggers import CORRECTED, PREDICTED, TASKS, predictions_one_by_one, regression_tagger

from jets import CLASSES, make_jets, write_jets
from partt.data.variables import Variables
from partt.errors import DataError, NumericalError
from partt.exporting import proof
from partt.exporting.export import export
from partt.model.tasks import Task
from partt.prediction.predict import predict
from partt.tagger.onnx_file import fingerprint, load_onnx_tagger
from prediction_jobs import columns

pytestmark = pytest.mark.slow  # two exports


@pytest.fixture(scope="module")
def tagger():
    return regression_tagger()


@pytest.fixture(scope="module")
def files(tagger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    return {
        kind: export(tagger, folder / kind / "m.onnx", inputs=kind).path for kind in ("raw", "standardised")
    }


def close(found, expected, name):
    size = np.nanmax(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * size, err_msg=name)


@pytest.mark.parametrize("kind", ["raw", "standardised"])
def test_every_output_is_torchs(tagger, files, kind):
    exported = load_onnx_tagger(files[kind])
    scores = [f"score_{name}" for name in CLASSES] if kind == "raw" else ["softmax"]
    outputs = [item.name for item in exported.session.get_outputs()]
    assert outputs == [*scores, *PREDICTED, *([CORRECTED] if kind == "raw" else [])]
    jets = make_jets(40, seed=5)
    expected = predictions_one_by_one(tagger, jets)
    variables = Variables(jets, tagger.data_config.formulas, "jets", np.arange(40))
    tagged = exported.tag(variables)
    assert list(tagged.predictions) == [*PREDICTED, CORRECTED]
    for name, values in tagged.predictions.items():
        close(values, expected[name], name)
    if kind == "raw":
        feed = {"num_particles": jets["part_px"].lengths[:1].astype(np.float32)}
        for item in exported.session.get_inputs():
            if item.name in jets:
                column = jets[item.name]
                values = column.contents[None, : column.offsets[1]] if len(item.shape) == 2 else column[:1]
                feed[item.name] = np.asarray(values, dtype=np.float32)
        assert "jet_eta" in feed  # for jet_mass, not for the network
        found = dict(zip(outputs, exported.session.run(None, feed), strict=True))
        assert found[CORRECTED][0] == pytest.approx(expected[CORRECTED][0], rel=1e-4)


def test_what_the_file_says(files):
    header = load_onnx_tagger(files["raw"]).header
    assert header.tasks == TASKS
    assert 0 < header.largest_relative_difference < proof.RELATIVE_TOLERANCE
    metadata = {item.key: item.value for item in onnx.load(files["raw"]).metadata_props}
    assert metadata["format_version"] == "2"
    mass = json.loads(metadata["tasks"])[2]
    assert (mass["name"], mass["unit"], mass["kind"]) == ("mass", "GeV", "gaussian")
    names = json.loads((files["standardised"].parent / "preprocess.json").read_text())["output_names"]
    assert names == [*(f"label_{name}" for name in CLASSES), *PREDICTED]


def test_predict_gives_the_same_columns(tagger, files, tmp_path):
    write_jets(tmp_path / "jets.root", 20)
    predict(tagger, tmp_path / "jets.root", tmp_path / "torch.root", num_threads=1)
    predict(files["raw"], tmp_path / "jets.root", tmp_path / "onnx.root", num_threads=1)
    one, other = columns(tmp_path / "torch.root"), columns(tmp_path / "onnx.root")
    assert list(one) == list(other)
    for name in (*PREDICTED, CORRECTED, "true_mass", "jet_mass"):
        close(other[name], one[name], name)


def test_only_a_regression(tmp_path):
    task = Task(name="m", kind="value", target="mass", shift=1e9, scale=1e-3)
    tagger = regression_tagger(tasks=(task,), type="custom", value={"mass": "jet_sdmass"})
    exported = load_onnx_tagger(export(tagger, tmp_path / "m.onnx", inputs="standardised").path)
    assert [item.name for item in exported.session.get_outputs()] == ["m"]
    assert exported.class_names == ()


def test_predictions_that_differ_are_found(tagger, files):
    session = load_onnx_tagger(files["standardised"]).session
    found = proof.largest_differences(tagger, "standardised", session)
    assert 0 < found.of_predictions < proof.RELATIVE_TOLERANCE
    other = regression_tagger()
    other.network.heads["ln_pt"].output.bias.data += 1e-3  # of a target whose scale is 1
    with pytest.raises(NumericalError, match="predictions differ from torch's by up to"):
        proof.largest_differences(other, "standardised", session)


def test_undecided_classes_do_not_fail_the_proof():
    """Which of two classes has the highest score may be up to rounding, and with it the prediction."""
    tagger = regression_tagger(tasks=(TASKS[0], TASKS[4]))
    last = tagger.network.heads["classes"].output
    last.weight.data[1], last.bias.data[1] = last.weight.data[0], last.bias.data[0] + 1e-7
    last.bias.data[:2] += 100
    jets = make_jets(20)
    expected = proof.torch_scores(tagger, jets)
    sizes = proof._sizes(tagger, jets, expected)
    assert np.isinf(sizes["energy"]).all()
    assert np.isfinite(sizes["energy_Hbb"]).all()


def test_outputs_must_be_those_of_the_header(files, tmp_path):
    def changed(change):
        model = onnx.load(files["raw"])
        change(model)
        metadata = {item.key: item.value for item in model.metadata_props}
        onnx.helper.set_model_props(model, {**metadata, "sha256": fingerprint(model)})
        onnx.save(model, tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    def without_a_task(model):
        for item in model.metadata_props:
            if item.key == "tasks":
                item.value = json.dumps(json.loads(item.value)[:-1])

    def without_an_output(model):
        del model.graph.output[-1]

    for change in (without_a_task, without_an_output):
        with pytest.raises(DataError, match="is damaged: its outputs are score_QCD"):
            load_onnx_tagger(changed(change))
