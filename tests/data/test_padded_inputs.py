"""A weaver network file gets the tensors of weaver-core's own dataset, and gives its own logits for them."""

import inspect

import numpy as np
import pytest
import torch
from kinds_of_configs import INPUTS, PF_AND_SV
from test_kinds_of_configs import _weaver_does_not_sleep, files, read_partt, read_weaver, write_config  # noqa: F401
from weaver.utils.data.config import DataConfig as WeaverConfig

from network_files import PF_SV, write_network
from partt.data.config.data_config import load_data_config
from partt.jet_inputs import Collection, JetInputs
from partt.model.network_file import read_network_file, run_network_file
from partt.model.registry import build_network, network_config
from partt.tagger.weaver_inputs import weaver_inputs

# Padding with other values than 0, by repetition, and an order of groups that is not partt's.
PADDED = (
    PF_AND_SV.replace("- cand_eta", "- [cand_eta, null, 1, -5, 5, -3]")
    .replace("[cand_d0, 0, 3, -2, 2]", "[cand_d0, 0, 3, -2, 2, 2.5]")
    .replace("  sv_features:\n    length: 3", "  sv_features:\n    length: 3\n    pad_mode: wrap")
)
KINDS = {
    name: text.replace("ak.fill_none(hardest, -1)", "2 * jet_mass")
    for name, text in {**INPUTS, "padded": PADDED}.items()
    if not name.startswith("mask")  # partt leaves out the particles that a mask excludes
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_equal_weavers(kind, files, tmp_path):  # noqa: F811
    path = write_config(tmp_path, KINDS[kind])
    theirs, _ = read_weaver(files, path)
    batch, config = read_partt(files, load_data_config(path))
    groups = weaver_inputs(config).groups
    assert [group.name for group in groups] == list(theirs)
    for group in groups:
        ours = group.pad(batch.inputs.padded()).numpy()
        assert ours.shape == theirs[group.name].shape
        np.testing.assert_allclose(ours, theirs[group.name], rtol=2e-6, atol=2e-6, err_msg=group.name)


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_equal_weavers(kind, tmp_path):
    path = write_config(tmp_path, KINDS[kind])
    theirs, ours = WeaverConfig.load(path), weaver_inputs(load_data_config(path)).data_config
    for name in ("input_names", "input_dicts", "input_shapes", "label_type", "label_value", "label_names"):
        assert getattr(ours, name) == getattr(theirs, name), name
        assert type(getattr(ours, name)) is type(getattr(theirs, name)), name
    assert ours.preprocess_params == theirs.preprocess_params
    with pytest.raises(AttributeError, match="has no 'label_valeu' .did you mean 'label_value'"):
        _ = ours.label_valeu


def test_logits_equal_weavers(files, tmp_path):  # noqa: F811
    """In float64, with the same weights and weaver-core's own tensors, packed and padded again."""
    path = write_config(tmp_path, PADDED)
    tensors, _ = read_weaver(files, path)
    tensors = {name: torch.from_numpy(values).double() for name, values in tensors.items()}
    config = load_data_config(path)
    code = run_network_file(read_network_file(write_network(tmp_path, PF_SV, "pf_sv.py")))
    kind = code.kind(weaver_inputs(config))
    torch.manual_seed(1)
    settings = network_config("pf_sv", {"num_heads": 4}, kind)
    network = build_network("pf_sv", settings, config.input_shape, {"classes": 3}, kind).double().eval()
    inputs = JetInputs({name: packed(tensors, name) for name in ("pf", "sv")})
    assert (inputs.collections["sv"].lengths == 0).any()
    with torch.inference_mode():
        expected = network.backbone.module(*tensors.values())
        torch.testing.assert_close(network(inputs)["classes"], expected, rtol=0, atol=1e-12)
    assert expected.std(dim=0).min() > 1e-3
    assert inspect.getsourcefile(type(network.backbone.module)).endswith(
        "weaver/nn/model/ParticleTransformer.py"
    )


def packed(tensors: dict[str, torch.Tensor], name: str) -> Collection:
    is_real = tensors[f"{name}_mask"][:, 0] != 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), is_real.sum(dim=1).cumsum(0)])
    features, momenta = (
        tensors[f"{name}_{part}"].transpose(1, 2)[is_real] for part in ("features", "vectors")
    )
    return Collection(features, offsets, momenta)
