"""Small taggers to export, and weaver-core's own exports of their weights."""

import fcntl
import pickle
import warnings
from pathlib import Path

import numpy as np
import torch

from jets import make_jets
from partt.data.jagged import Jagged, take
from partt.exporting.export import ExportResult, export
from partt.model.weaver_weights import export_particle_transformer
from partt.tagger.onnx_file import new_session
from small_networks import make_tagger

# case -> data config
CASES = {
    "part": "jetclass_full",
    "part_plain": "jetclass_kin",
    "part_xs": "jetclass_kinpid",
    "slim_s": "jetclass_full",
    "slim_m": "jetclass_kin",
    "pfn": "jetclass_full",
    "pcnn": "jetclass_kin",
    "gru": "jetclass_kinpid",
    "lstm": "jetclass_full",
    "particlenet": "jetclass_kin",
}


def tagger_to_export(case="part", **changes):
    """Return a small tagger with random weights; `changes` are keys of its data config."""
    return make_tagger(case, CASES[case], make_jets(6, seed=2), **changes)


def exported_once(case: str, inputs: str, folder: Path) -> ExportResult:
    """Export a case, or return what another process of the tests has exported to this folder."""
    here = folder / f"{case}_{inputs}"
    here.mkdir(parents=True, exist_ok=True)
    with (here / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (here / "result").exists():
            result = export(tagger_to_export(case), here / "m.onnx", inputs=inputs)
            (here / "result").write_bytes(pickle.dumps(result))
    return pickle.loads((here / "result").read_bytes())  # noqa: S301 - written above


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

    config = tagger.network.config
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
    network.load_state_dict(export_particle_transformer(tagger.network.state_dict(), config))
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
