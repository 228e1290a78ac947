"""Taggers with several collections, jet-level inputs and masks: exported files have the scores of torch."""

import re

import numpy as np
import pytest
import torch
from kinds_of_configs import INPUTS, make_events, write_events

from partt.config import parse_record
from partt.data.config.data_config import DataConfig
from partt.data.files.tables import read_columns
from partt.data.jagged import take
from partt.data.variables import Variables
from partt.errors import ConfigError, NumericalError
from partt.exporting import proof
from partt.exporting.export import export
from partt.model.config_types import CLASSES
from partt.model.registry import build_network, network_config
from partt.prediction.predict import predict
from partt.tagger.onnx_file import load_onnx_tagger
from partt.tagger.onnx_inputs import input_axes
from partt.tagger.tagger_file import new_tagger
from small_networks import randomise

TOLERANCE = 1e-5
NETWORKS = {
    "pf and sv": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}),
    "jets only": ("mlp", {"widths": (8, 8)}),
    "jets and particles": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}),
    "mask from a formula": ("particlenet", {"convolutions": ((8, 8), (12,))}),
    "cpf, npf, sv": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}),
}


# with a formula that can be exported, instead of one that cannot
LEADING_MASS = "leading_mass: ak.sum(vertex_mass, axis=1)"
CONFIGS = {kind: re.sub("leading_mass: .*", LEADING_MASS, text) for kind, text in INPUTS.items()}


def tagger_of(kind: str):
    config = parse_record(CONFIGS[kind], DataConfig, kind)
    name, settings = NETWORKS[kind]
    torch.manual_seed(1)
    network = build_network(
        name, network_config(name, settings), config.input_shape, {CLASSES: len(config.class_names)}
    )
    randomise(network)
    return new_tagger(network.eval(), config, make_events(12, seed=5))


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("pf and sv", "raw"),
        ("jets only", "raw"),
        ("mask from a formula", "raw"),
        ("jets and particles", "standardised"),
    ],
)
def test_scores_are_torchs(kind, inputs, tmp_path):
    tagger = tagger_of(kind)
    result = export(tagger, tmp_path / "m.onnx", inputs=inputs)
    events = make_events(80, seed=7)
    variables = Variables(events, tagger.data_config.formulas, "test", np.arange(80))
    expected = proof.torch_scores(tagger, events).probabilities
    loaded = load_onnx_tagger(result.path)
    np.testing.assert_allclose(loaded.tag(variables).probabilities, expected, rtol=0, atol=TOLERANCE)
    alone = {name: take(column, np.array([3])) for name, column in events.items()}
    variables = Variables(alone, tagger.data_config.formulas, "test", np.arange(1))
    np.testing.assert_allclose(loaded.tag(variables).probabilities, expected[[3]], rtol=0, atol=TOLERANCE)


def test_collections_have_inputs_of_their_own():
    tagger = tagger_of("pf and sv")
    config, jets = tagger.data_config, tagger.reference_jets
    raw = input_axes("raw", config, jets)
    assert raw["num_pf"] == raw["num_sv"] == ("jets",)
    assert raw["cand_pt"] == ("jets", "pf")
    assert raw["vertex_mass"] == ("jets", "sv")
    assert "num_particles" not in raw
    standardised = input_axes("standardised", config, jets)
    assert list(standardised) == list(config.group_order)
    assert standardised["sv_features"] == ("jets", 2, "sv")
    tagger = tagger_of("jets only")
    assert input_axes("standardised", tagger.data_config, tagger.reference_jets) == {
        "highlevel": ("jets", 3),
        "score": ("jets",),
        "global_features": ("jets", 2, 1),
        "lead_features": ("jets", 2, 1),
    }


def test_collections_cut_out_of_the_same_branches(tmp_path):
    """Formulas that choose particles are left to the program that runs the file."""
    tagger = tagger_of("cpf, npf, sv")
    with pytest.raises(ConfigError, match="cpf_.*cannot be exported.*--inputs standardised"):
        export(tagger, tmp_path / "m.onnx")
    result = export(tagger, tmp_path / "m.onnx", inputs="standardised")
    jets = write_events(tmp_path / "jets.root", 60, seed=3)
    scores = []
    for one, name in ((tagger, "torch"), (load_onnx_tagger(result.path), "onnx")):
        predict(one, jets, tmp_path / f"{name}.root")
        columns = read_columns(str(tmp_path / f"{name}.root"), [f"score_{c}" for c in tagger.class_names])
        scores.append(np.stack(list(columns.values())))
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=TOLERANCE)


def test_momenta_from_formulas_are_blamed_for_a_difference(tmp_path, monkeypatch):
    tagger = tagger_of("pf and sv")
    monkeypatch.setattr(proof, "TOLERANCE", 0.0)
    with pytest.raises(NumericalError, match="differ.*cand_px, .*vertex_e.*: use --inputs standardised"):
        export(tagger, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
