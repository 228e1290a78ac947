"""Small taggers to export, and weaver-core's own exports of their weights."""

import warnings
from pathlib import Path

import numpy as np
import torch

from jets import make_jets
from partt.data.config.data_config import load_data_config
from partt.data.jagged import Jagged, take
from partt.data.variables import Variables
from partt.model.registry import build_network, network_config
from partt.model.weaver_weights import export_particle_transformer
from partt.tagger.onnx_file import new_session
from partt.tagger.tagger_file import new_tagger

TINY_PART = {"width": 16, "num_heads": 2, "num_blocks": 1, "num_class_blocks": 1, "feed_forward_width": 32}
TINY_PART |= {"embedding_widths": (16,), "pair_widths": (8,)}
# name of the case -> (network, settings, data config)
CASES = {
    "part": ("part", TINY_PART, "jetclass_full"),
    "part_plain": ("part_plain", {**TINY_PART, "pair_widths": None}, "jetclass_kin"),
    "part_xs": ("part_xs", {"num_blocks": 1}, "jetclass_kinpid"),
    "pfn": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}, "jetclass_full"),
    "pcnn": ("pcnn", {"unit_widths": (8, 8), "first_width": 4, "hidden_width": 8}, "jetclass_kin"),
    "gru": ("recurrent", {"width": 8}, "jetclass_kinpid"),
    "lstm": ("recurrent", {"cell": "lstm", "width": 8}, "jetclass_full"),
    "particlenet": ("particlenet", {"convolutions": ((8, 8), (12,)), "hidden_width": 8}, "jetclass_kin"),
}


def make_tagger(case="part", **changes):
    """Return a tagger with random weights; `changes` are keys of its data config."""
    name, settings, config_name = CASES[case]
    config = load_data_config(config_name).replace(**changes)
    torch.manual_seed(5)
    model = build_network(name, network_config(name, settings), len(config.particles.variables), 10)
    with torch.no_grad():
        for parameter in model.parameters():  # away from neutral starts, so that scores depend on everything
            parameter.add_(0.1 * torch.randn_like(parameter))
    return new_tagger(name, model.eval(), config, make_jets(6, seed=2))


def variables_of(tagger, num_jets=40, seed=1):
    """Return raw columns of jets, some empty and some over 128 particles."""
    jets = make_jets(num_jets, seed=seed)
    first = jets["part_px"].lengths
    assert first.max() > 128
    assert first.min() == 0
    return Variables(jets, tagger.data_config.formulas, "test", np.arange(num_jets))


def some(variables, jets):
    return {name: take(column, np.asarray(jets)) for name, column in variables.branches.items()}


def dense(columns, names, num_slots):
    """Return columns as a C-like program would hold them: zero-padded arrays of float32."""
    lengths = columns["part_px"].lengths
    mask = np.arange(num_slots) < lengths[:, None]
    feed = {"num_particles": lengths.astype(np.float32)}
    for name in names:
        if isinstance(columns[name], Jagged):
            feed[name] = np.zeros(mask.shape, dtype=np.float32)
            feed[name][mask] = columns[name].contents
        else:
            feed[name] = columns[name].astype(np.float32)
    return feed


def wrapped(feed):
    """Return inputs padded with copies of particles (pad_mode: wrap): with zeros, weaver's export gives NaN."""
    mask = feed["pf_mask"][:, 0].astype(bool)
    rows = np.arange(mask.shape[1]) % mask.sum(axis=1)[:, None]
    return {
        name: values if name == "pf_mask" else np.take_along_axis(values, rows[:, None], axis=2)
        for name, values in feed.items()
    }


def weaver_session(tagger, folder: Path):
    """Return weaver-core's own export of a Particle Transformer's weights."""
    from weaver.nn.model.ParticleTransformer import ParticleTransformer

    config = tagger.model.config
    num_features = len(tagger.data_config.particles.variables)
    network = ParticleTransformer(
        num_features,
        num_classes=len(tagger.class_names),
        embed_dims=[*config.embedding_widths, config.width],
        pair_embed_dims=config.pair_widths and list(config.pair_widths),
        num_heads=config.num_heads,
        num_layers=config.num_blocks,
        num_cls_layers=config.num_class_blocks,
        block_params={"ffn_ratio": config.feed_forward_width // config.width},
        cls_block_params={"ffn_ratio": config.feed_forward_width // config.width, "dropout": 0},
        use_pre_activation_pair=False,
        fc_params=[],
        for_inference=True,
        trim=False,
    )
    network.load_state_dict(export_particle_transformer(tagger.model.state_dict(), config))
    names = ["pf_features", "pf_vectors", "pf_mask"]
    path = folder / "weaver.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network.eval(),
            (torch.ones(2, num_features, 8), torch.ones(2, 4, 8), torch.ones(2, 1, 8)),
            str(path),
            input_names=names,
            output_names=["softmax"],
            dynamic_axes={name: {0: "jets", 2: "particles"} for name in names},
            opset_version=17,
            dynamo=False,
        )
    return new_session(path.read_bytes())
