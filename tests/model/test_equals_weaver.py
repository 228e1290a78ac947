"""Networks equal weaver-core's to 1e-8 in float64, and reproduce stored logits."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional
from weaver.nn.model.ParticleNet import ParticleNetTagger
from weaver.nn.model.ParticleTransformer import ParticleTransformer as WeaverParticleTransformer
from weaver.nn.model.ParticleTransformer import ParticleTransformerTagger

from conftest import FIXTURES
from partt.data.config.data_config import load_data_config
from partt.jet_inputs import Collection, CollectionShape, InputShape, JetInputs
from partt.model.baselines.particlenet import ParticleNetConfig, nearest_neighbours
from partt.model.grouping import group_jets
from partt.model.registry import build_network
from partt.model.weaver_architecture import recognise
from partt.model.weaver_weights import (
    export_particle_transformer,
    export_particlenet,
    import_particle_transformer,
    import_particlenet,
    read_weaver_file,
)
from small_networks import logits_of, packed_jets, randomise

LENGTHS = (1, 2, 3, 128, 17, 40, 64, 100, 9, 33, 1)


def weaver_network(num_features, *, plain, **options):
    network = WeaverParticleTransformer(
        num_features,
        num_classes=10,
        use_pre_activation_pair=False,
        pair_embed_dims=None if plain else (64, 64, 64),
        fc_params=[],
        trim=False,
        **options,
    ).double()
    randomise(network)
    return network


def our_network(weaver):
    config, state = import_particle_transformer(weaver.state_dict(), "0.5")
    network = new_network(
        "part", config, state["backbone.particle_embedding.input_norm.weight"].numel()
    ).double()
    network.load_state_dict(state)
    return network


def new_network(name, config, num_features, num_classes=10):
    shape = InputShape({"pf": CollectionShape(num_features, has_momenta=True, num_coordinates=2)})
    return build_network(name, config, shape, {"classes": num_classes})


def weaver_inputs(jets, length):
    particles = jets.padded(length).main
    return particles.features.transpose(1, 2), particles.momenta.transpose(1, 2), particles.mask[:, None]


@pytest.mark.parametrize("plain", [False, True], ids=["part", "part_plain"])
@pytest.mark.parametrize("num_features", [7, 17], ids=["kin", "full"])
def test_logits_in_evaluation(num_features, plain):
    jets = packed_jets(LENGTHS, num_features)
    weaver = weaver_network(num_features, plain=plain).eval()
    ours = our_network(weaver).eval()
    with torch.inference_mode():
        expected = weaver(*weaver_inputs(jets, 128))
        torch.testing.assert_close(logits_of(ours, jets), expected, rtol=0, atol=1e-8)
        padded = ours.forward_padded(jets.padded(128))["classes"]
        torch.testing.assert_close(padded, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("plain", [False, True], ids=["part", "part_plain"])
def test_losses_and_gradients_in_training(plain):
    """Equal lengths: the reference's BatchNorm of the particles also sees padding, ours does not."""
    jets = packed_jets([20] * 6)
    labels = torch.arange(6)
    no_dropout = {"dropout": 0, "attn_dropout": 0, "activation_dropout": 0}
    weaver = weaver_network(17, plain=plain, block_params=no_dropout).train()
    ours = our_network(weaver)
    zero = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    without_dropout = new_network("part", ours.config.model_copy(update=zero), 17).double().train()
    without_dropout.load_state_dict(ours.state_dict())
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.01) for n in (weaver, without_dropout)]
    for step in range(2):
        losses = [
            functional.cross_entropy(weaver(*weaver_inputs(jets, 20)), labels),
            functional.cross_entropy(logits_of(without_dropout, jets), labels),
        ]
        torch.testing.assert_close(losses[1], losses[0], rtol=0, atol=1e-8)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
        gradients = {name: parameter.grad for name, parameter in weaver.named_parameters()}
        buffers = dict(weaver.named_buffers())
        _, expected = import_particle_transformer({**weaver.state_dict(), **gradients}, "0.5")
        for name, parameter in without_dropout.named_parameters():
            torch.testing.assert_close(
                parameter.grad, expected[name], rtol=0, atol=1e-8, msg=f"{step}: {name}"
            )
        for name, buffer in without_dropout.named_buffers():
            torch.testing.assert_close(buffer, expected[name], rtol=0, atol=1e-8, msg=f"{step}: {name}")
        assert buffers
        for optimizer in optimizers:
            optimizer.step()


# --- several collections, versions, pair features, heads -----------------------------------------------------

SMALL_WEAVER = {
    "embed_dims": (16, 32, 16),
    "pair_embed_dims": (8, 8),
    "num_heads": 4,
    "num_layers": 2,
    "num_cls_layers": 1,
    "num_classes": 5,
    "use_pre_activation_pair": False,
    "trim": False,
}
NO_DROPOUT = {"dropout": 0, "attn_dropout": 0, "activation_dropout": 0, "drop_path_rate": 0}
OUR_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "drop_path": 0.0}
# case -> options of weaver's network, settings of ours that its weights do not show
CASES = {
    "version 1": ({}, {}),
    "version 2": ({"version": 2}, {}),
    "version 3": ({"version": 3, "fc_params": [(7, 0.0)]}, {}),
    "plain": ({"pair_embed_dims": None}, {}),
    "ee": ({"pair_input_type": "ee"}, {"pair_features": "ee"}),
    "xyzt": ({"pair_input_type": "xyzt:rect"}, {}),
    "no self pairs": (
        {"remove_self_pair": True, "use_pre_activation_pair": True},
        {"self_pairs": False, "pair_last_activation": False},
    ),
    "ee, no self pairs": (
        {"pair_input_type": "ee", "remove_self_pair": True},
        {"pair_features": "ee", "self_pairs": False},
    ),
    "head": ({"fc_params": [(8, 0.0), (6, 0.0)]}, {}),
}


def two_collections(lengths, sv_lengths, dtype=torch.float64):
    pf, sv = packed_jets(lengths, 7, seed=1, dtype=dtype), packed_jets(sv_lengths, 4, seed=2, dtype=dtype)
    return JetInputs({"pf": pf.main, "sv": sv.main})


def weaver_collections(jets, parts):
    """Return the inputs of weaver's taggers: some parts, (B, K, P) each, and the mask of each collection."""
    tensors = []
    for collection in jets.padded().collections.values():
        tensors += [getattr(collection, part).transpose(1, 2) for part in parts]
        tensors.append(collection.mask[:, None])
    return tensors


def twin_of(weaver, shape, settings):
    """Return our network with weaver's weights, and a function that gives weaver's tensors our names."""
    architecture = recognise(weaver.state_dict())
    read = (
        import_particlenet
        if architecture.kind == "particlenet"
        else partial(import_particle_transformer, dialect="0.5")
    )

    def renamed(tensors):
        return read({**weaver.state_dict(), **tensors}, settings=settings)[1]

    config, state = read(weaver.state_dict(), settings=settings)
    network = build_network(architecture.network, config, shape, {"classes": 5}).double()
    network.load_state_dict(state)
    return network.train(weaver.training), renamed


def assert_equal_logits_and_gradients(ours, renamed, weaver, jets, inputs):
    """Compare logits, gradients of all parameters, and buffers."""
    torch.manual_seed(4)
    weights = torch.randn(len(jets), 5, dtype=torch.float64)
    logits, expected = logits_of(ours, jets), weaver(*inputs)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
    for computed in (logits, expected):
        (computed * weights).sum().backward()
    gradients = renamed({name: parameter.grad for name, parameter in weaver.named_parameters()})
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-8, atol=1e-8, msg=name)
    state = renamed({})
    for name, tensor in ours.state_dict().items():  # buffers too
        torch.testing.assert_close(tensor, state[name], rtol=1e-8, atol=1e-8, msg=name)
    if not ours.training:
        padded = ours.forward_padded(jets.padded(18))["classes"]
        torch.testing.assert_close(padded, expected, rtol=0, atol=1e-8)


# In training weaver's BatchNorms see padding, so all jets have equal counts.
JETS = {
    False: two_collections([1, 2, 17, 30, 9, 1, 12], [0, 3, 1, 0, 5, 1, 2]),
    True: two_collections([12] * 6, [3] * 6),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_particle_transformer_tagger(case, training):
    options, settings = CASES[case]
    options = {**SMALL_WEAVER, **options}
    no_dropout = {"block_params": NO_DROPOUT, "cls_block_params": NO_DROPOUT}
    weaver = ParticleTransformerTagger(7, 4, **options, **no_dropout).double().train(training)
    randomise(weaver)
    jets = JETS[training]
    ours, renamed = twin_of(weaver, jets.shape, {**settings, **OUR_NO_DROPOUT, "head": ours_head(options)})
    inputs = weaver_collections(jets, ("features", "momenta"))
    assert_equal_logits_and_gradients(ours, renamed, weaver, jets, inputs)


def ours_head(options):
    widths = [width for width, _ in options.get("fc_params", [])]
    return {"hidden_widths": widths, "bias": options.get("version") != 3}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_versions_of_one_collection(version):
    options = {**SMALL_WEAVER, "version": version}
    weaver = WeaverParticleTransformer(7, **options).double().eval()
    randomise(weaver)
    jets = packed_jets([1, 2, 17, 30, 9], 7)
    ours, renamed = twin_of(weaver, jets.shape, {})
    assert_equal_logits_and_gradients(ours, renamed, weaver, jets, weaver_inputs(jets, 30))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fusion", [False, True])
def test_particlenet_tagger(fusion, training):
    convolutions = [(4, (8, 8)), (4, (12,))]
    heads = [(8, 0.0), (6, 0.0)]
    weaver = ParticleNetTagger(7, 4, 5, convolutions, heads, use_fusion=fusion, trim=False).double()
    randomise(weaver)
    weaver.train(training)
    jets = JETS[training]
    settings = {"num_neighbours": 4, "head": {"hidden_widths": [8, 6]}}
    ours, renamed = twin_of(weaver, jets.shape, settings)
    inputs = weaver_collections(jets, ("points", "features"))
    assert_equal_logits_and_gradients(ours, renamed, weaver, jets, inputs)


@pytest.mark.parametrize("case", CASES)
def test_weights_go_back_to_weavers_tagger(case):
    options, settings = CASES[case]
    weaver = ParticleTransformerTagger(7, 4, **{**SMALL_WEAVER, **options})
    state = weaver.state_dict()
    config, ours = import_particle_transformer(state, "0.5", settings=settings)
    back = export_particle_transformer(ours, config, "0.5", ("pf", "sv"))
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


def test_weights_go_back_to_weavers_particlenet_tagger():
    state = ParticleNetTagger(7, 4, 5, [(4, (8, 8)), (4, (12,))], [(8, 0.0), (6, 0.0)]).state_dict()
    back = export_particlenet(*reversed(import_particlenet(state)), ("pf", "sv"))
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize("dialect", ["0.4", "0.5"])
def test_stored_logits_of_both_dialects(dialect):
    name = f"part_small_weaver{dialect.replace('.', '')}"
    data = np.load(FIXTURES / "part_small_jets.npz")
    logits = np.load(FIXTURES / f"{name}_logits.npz")
    weaver_state = read_weaver_file(FIXTURES / f"{name}.pt")
    mask = torch.tensor(data["m"][:, 0]).bool()
    particles, momenta = (torch.tensor(data[key]).transpose(1, 2) for key in "xv")
    offsets = functional.pad(mask.sum(1).cumsum(0), (1, 0))
    for dtype, expected, tolerance in (
        (torch.float64, logits["logits64"], 1e-8),
        (torch.float32, logits["logits"], 2 * np.abs(logits["logits"] - logits["logits64"]).max()),
    ):
        typed = {k: v.to(dtype) if v.is_floating_point() else v for k, v in weaver_state.items()}
        config, state = import_particle_transformer(typed, dialect)
        network = new_network("part", config, 17).to(dtype).eval()
        network.load_state_dict(state)
        with torch.inference_mode():
            real = Collection(particles[mask].to(dtype), offsets, momenta[mask].to(dtype))
            computed = logits_of(network, JetInputs({"pf": real}))
        torch.testing.assert_close(
            computed, torch.tensor(expected, dtype=dtype), rtol=0, atol=float(tolerance)
        )


def test_the_wrong_dialect_gives_other_logits():
    """The shapes agree, so only the outputs show a wrong dialect."""
    state = read_weaver_file(FIXTURES / "part_small_weaver05.pt")
    weights = [import_particle_transformer(state, dialect)[1] for dialect in ("0.4", "0.5")]
    name = "backbone.blocks.0.attention.out_proj.weight"
    assert weights[0][name].shape == weights[1][name].shape
    assert not torch.allclose(weights[0][name], weights[1][name])


@pytest.mark.parametrize("training", [False, True])
def test_particlenet_on_packed_edges_is_weavers(training):
    """Jets with too few neighbours too; in training with equal lengths, because weaver's BatchNorm sees padding."""
    lengths = [30] * 6 if training else [1, 2, 5, 16, 17, 18, 40, 64, 100]
    jets = packed_jets(lengths, num_features=7, seed=3)
    config = ParticleNetConfig(convolutions=((8, 8), (12, 12), (12, 12)), hidden_width=16, dropout=0.0)
    network = new_network("particlenet", config, 7, num_classes=4).double()
    randomise(network)
    network.train(training)
    twin = copy.deepcopy(network)
    particles = jets.padded(config.num_neighbours + 1).main
    padded = (values.transpose(1, 2) for values in (particles.points, particles.features))
    expected = twin.outputs(twin.backbone.weaver(*padded, particles.mask[:, None]))["classes"]
    logits = logits_of(network, jets)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-8)
    for computed in (expected, logits):
        computed.square().sum().backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(
            parameter.grad, twin.get_parameter(name).grad, rtol=1e-7, atol=1e-8, msg=name
        )
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(buffer, twin.get_buffer(name), rtol=1e-8, atol=1e-8, msg=name)


def test_particlenet_of_empty_and_single_jets():
    config = ParticleNetConfig(convolutions=((4,),), hidden_width=4)
    network = new_network("particlenet", config, 7, num_classes=3).double()
    jets = packed_jets([0, 1, 0, 3], num_features=7)
    logits = logits_of(network.train(), jets)
    logits.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())
    network.eval()
    nothing = packed_jets([0, 0], num_features=7)
    torch.testing.assert_close(logits_of(network, nothing), logits_of(network, jets)[[0, 2]])


def test_neighbours_in_mixed_precision():
    """As on a GPU with precision: bfloat16, whose numbers have three digits."""
    jets = packed_jets([40, 25], dtype=torch.float32).main
    arguments = (jets.points, jets.layout, group_jets(jets.layout), 8)
    expected = nearest_neighbours(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nearest_neighbours(*arguments), expected)


def test_particlenet_scores_on_real_jets(reference):
    data = np.load(reference / "jetclass_500_real_jets.npz")
    expected = np.load(reference / "particlenet_kin_scores_on_500.npy")
    config, state = import_particlenet(read_weaver_file(reference / "ParticleNet_kin.pt"))
    network = new_network("particlenet", config, 7).eval()
    network.load_state_dict(state)
    mask = data["mask"][:, 0].astype(bool)
    momenta, points = (data[key].transpose(0, 2, 1)[mask].astype(np.float64) for key in ("momenta", "points"))
    lengths = mask.sum(1)
    pt, energy = np.hypot(momenta[:, 0], momenta[:, 1]), momenta[:, 3]
    sums = data["momenta"].astype(np.float64) * mask[:, None]
    jet_pt = np.hypot(sums[:, 0].sum(1), sums[:, 1].sum(1)).repeat(lengths)
    jet_energy = sums[:, 3].sum(1).repeat(lengths)
    raw = [np.log(pt), np.log(energy), np.log(pt / jet_pt), np.log(energy / jet_energy), np.hypot(*points.T)]
    variables = load_data_config("jetclass_kin").particles.variables
    features = [
        np.clip((values - v.subtract_by) * v.multiply_by, v.clip_min, v.clip_max)
        for values, v in zip(raw, variables[:5], strict=True)
    ]
    particles = torch.tensor(np.stack([*features, *points.T], axis=1), dtype=torch.float32)
    offsets = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]))
    with torch.inference_mode():
        jets = Collection(particles, offsets, points=torch.tensor(points, dtype=torch.float32))
        logits = logits_of(network, JetInputs({"pf": jets}))
    scores = logits.softmax(1).numpy()
    np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-5)
    accuracy = (scores.argmax(1) == data["labels"].argmax(1)).mean()
    assert accuracy > 0.7  # trained on real jets: better than random guesses
