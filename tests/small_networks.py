"""Small networks, packed jets for them, and taggers made of both: what tests of all rooms use."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from jets import make_jets
from partt.data.config.data_config import load_data_config
from partt.data.jet_batch import take_inputs
from partt.data.made_up_jets import made_up_jets
from partt.data.variables import Variables
from partt.jet_inputs import Collection, JetInputs
from partt.model.config_types import CLASSES
from partt.model.network import Network
from partt.model.registry import build_network, network_config
from partt.tagger.tagger_file import TorchTagger, new_tagger

SMALL_PART = {
    "width": 16,
    "num_heads": 4,
    "num_blocks": 2,
    "num_class_blocks": 1,
    "feed_forward_width": 32,
    "embedding_widths": (16, 32),
    "pair_widths": (8, 8),
}
SMALL_SLIM = {"vector_channels": 4, "scalar_channels": 16, "num_blocks": 2, "num_heads": 4}
# case -> (network, settings), for one collection of particles
SMALL = {
    "part": ("part", SMALL_PART),
    "part_plain": ("part_plain", {**SMALL_PART, "pair_widths": None}),
    "part_v2": ("part_v2", SMALL_PART),
    "part_v3": ("part_v3", {**SMALL_PART, "drop_path": 0.5}),
    "part_xs": ("part_xs", {"num_blocks": 1}),
    "part_s": ("part_s", {"num_blocks": 1}),
    "part_m": ("part_m", {"num_blocks": 1}),
    "slim_xs": ("slim_xs", {"num_blocks": 2}),
    "slim_s": ("slim_s", {"num_blocks": 1}),
    "slim_m": ("slim_m", SMALL_SLIM),
    "slim_l": ("slim_l", {**SMALL_SLIM, "num_heads": 2, "spurions": False}),
    "particlenet": ("particlenet", {"convolutions": ((8, 8), (12,)), "hidden_width": 8}),
    "pfn": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}),
    "pcnn": ("pcnn", {"unit_widths": (8, 8, 12), "first_width": 4, "hidden_width": 8}),
    "gru": ("recurrent", {"width": 8}),
    "lstm": ("recurrent", {"width": 8, "cell": "lstm"}),
}
# case -> (network, settings), with settings for other inputs, which `jets_for` makes
OTHERS = {
    "part_ee": ("part", {**SMALL_PART, "pair_features": "ee", "self_pairs": False}),
    "part_xyzt": ("part", {**SMALL_PART, "pair_features": "xyzt"}),
    "part, pf sv": ("part", {**SMALL_PART, "self_pairs": False, "pair_last_activation": False}),
    "part, pf sv jet": ("part", {**SMALL_PART, "pair_features": "pp_jet", "head": {"hidden_widths": [8, 6]}}),
    "part_v3, sv pf lt": ("part_v3", {**SMALL_PART, "head": {"hidden_widths": [8], "bias": False}}),
    "part_xs, pf sv": ("part_xs", {"num_blocks": 1, "pair_widths": None}),
    "slim_xs, sv pf jet": ("slim_xs", {**SMALL_SLIM, "frame": "jet", "head": {"hidden_widths": [8]}}),
    "particlenet, lt sv pf jet": ("particlenet", {"convolutions": ((8, 8), (12,)), "fusion": True}),
    "pfn, sv pf jet": ("pfn", {"particle_widths": (16,), "jet_widths": (16,)}),
    "pcnn, pf jet": ("pcnn", {"unit_widths": (8, 8, 12), "first_width": 4, "head": {}}),
    "gru, pf jet": ("recurrent", {"width": 8, "head": {"hidden_widths": [8], "dropout": [0.5]}}),
    "mlp, jet": ("mlp", {"widths": (8, 8)}),
}
ALL = {**SMALL, **OTHERS}


def jets_for(case, lengths, num_features=17, seed=0, dtype=torch.float64) -> JetInputs:
    """Return random jets for a case; `lengths` are those of the main collection, others have up to three."""
    names = case.partition(",")[2].split() or ["pf"]
    collections = {}
    widths = {"pf": num_features, "sv": 5, "lt": 3}
    for name in (name for name in names if name in widths):
        own = lengths if name == "pf" else [(5 * jet + widths[name]) % 4 for jet in range(len(lengths))]
        collections[name] = packed_jets(own, widths[name], seed + widths[name], dtype).main
    random = np.random.default_rng(seed)
    groups = {"jet_features": 3, "jet_more": 1} if "jet" in names else {}
    return JetInputs(
        collections,
        {
            name: torch.tensor(random.normal(size=(len(lengths), size)), dtype=dtype)
            for name, size in groups.items()
        },
    )


def packed_jets(lengths, num_features=17, seed=0, dtype=torch.float64) -> JetInputs:
    """Return random jets with these numbers of particles."""
    random = np.random.default_rng(seed)
    total = int(np.sum(lengths))
    pt = random.exponential(8, total) + 0.5
    eta, phi = random.normal(0.3, 0.3, total), random.normal(3.0, 0.3, total)
    mass = random.choice([0.0, 0.000511, 0.1396, 0.498], total)
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    momenta = np.stack([px, py, pz, np.sqrt(px**2 + py**2 + pz**2 + mass**2)], axis=1)
    particles = Collection(
        features=torch.tensor(random.normal(0, 1, (total, num_features)), dtype=dtype),
        offsets=torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int64),
        momenta=torch.tensor(momenta, dtype=dtype),
        points=torch.tensor(np.stack([eta - 0.3, phi - 3.0], axis=1), dtype=dtype),
    )
    return JetInputs({"pf": particles})


def with_particles(inputs: JetInputs, **changes) -> JetInputs:
    """Return jets with some tensors of their main collection exchanged."""
    return JetInputs({**inputs.collections, "pf": replace(inputs.main, **changes)}, inputs.jet_features)


def one_jet(inputs: JetInputs, index: int) -> JetInputs:
    return take_inputs(inputs, np.array([index]))


def small_network(case="part", inputs: JetInputs | None = None, num_classes=10, **settings) -> Network:
    """Return a small network in float64, away from its neutral start; by default for 17 features."""
    torch.manual_seed(0)
    name, small = ALL[case]
    shape = (jets_for(case, [1]) if inputs is None else inputs).shape
    config = network_config(name, {**small, **settings})
    network = build_network(name, config, shape, {CLASSES: num_classes}).double()
    randomise(network)
    return network


def logits_of(network: Network, inputs: JetInputs) -> Tensor:
    return network(inputs)[CLASSES]


def randomise(network: nn.Module, seed: int = 1) -> None:
    """Move every weight and every running statistic away from its neutral start."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data += 0.1 * noise.to(parameter.dtype)
    for name, buffer in network.named_buffers():
        random = torch.rand(buffer.shape, generator=generator, dtype=torch.float64)
        if name.endswith("running_var"):
            buffer.copy_(random + 0.5)
        elif name.endswith("running_mean"):
            buffer.copy_(2 * random - 1)


def make_tagger(
    case="part", config="jetclass_kin", reference_jets=None, settings=None, neutral=False, tasks=(), **changes
) -> TorchTagger:
    """Return a small tagger with random weights; `changes` are keys of its data config.

    `neutral`: as a new network starts, so that rounding of the inputs hardly matters. `tasks`: what it
    predicts (default: the classes).
    """
    torch.manual_seed(3)
    name, small = SMALL[case]
    data_config = load_data_config(config).replace(**changes)
    network = build_network(
        name,
        network_config(name, {**small, **(settings or {})}),
        data_config.input_shape,
        {task.name: task.num_outputs for task in tasks} or {CLASSES: len(data_config.class_names)},
    )
    if not neutral:
        randomise(network)
    jets = made_up_jets() if reference_jets is None else reference_jets
    return new_tagger(network.eval(), data_config, jets, tasks)


def variables_of(tagger, num_jets=40, seed=1):
    """Return raw columns of jets, some empty and some over 128 particles."""
    jets = make_jets(num_jets, seed=seed)
    first = jets["part_px"].lengths
    assert first.max() > 128
    assert first.min() == 0
    return Variables(jets, tagger.data_config.formulas, "test", np.arange(num_jets))
