"""Packed equals padded, attention maps against a slow oracle, dropout, trimming, initialisation, export."""

import itertools
import math

import numpy as np
import pytest
import torch
from test_symmetries import LENGTHS

from partt.errors import ConfigError
from partt.jet_inputs import Collection, CollectionShape, InputShape, Layout, PaddedCollection, PaddedInputs
from partt.model import registry
from partt.model.blocks import DropPath
from partt.model.cpu.dropout import Dropout
from partt.model.grouping import GroupSize, group_jets, join_rows, split_rows
from partt.model.inspection import inspect_jets
from partt.model.interleaving import interleave
from partt.model.network import Network
from partt.model.pairs import pack_pairs, square, triangle
from partt.model.particle_transformer import ParticleTransformer
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.trimming import trim_collections, trim_jets
from partt.physics.pair_features import pair_features
from small_networks import (
    SMALL_PART,
    jets_for,
    logits_of,
    one_jet,
    packed_jets,
    small_network,
    with_particles,
)

COUNTS = {"part": 2_143_486, "part_plain": 2_133_918}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_of_the_paper(name):
    shape = packed_jets([1]).shape
    network = registry.build_network(name, registry.network_config(name), shape, {"classes": 10})
    assert network.num_parameters == COUNTS[name]


@pytest.mark.parametrize("name", ["part", "part_plain"])
def test_packed_equals_dense(name):
    network, jets = small_network(name).eval(), packed_jets(LENGTHS)
    for length in (128, 150):
        dense = network.forward_padded(jets.padded(length))["classes"]
        torch.testing.assert_close(logits_of(network, jets), dense, rtol=0, atol=1e-10)


def test_packed_training_equals_dense_training_on_equal_lengths():
    options = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    network, jets = small_network(**options).train(), packed_jets([9] * 5)
    packed = logits_of(network, jets)
    network.backbone.particle_embedding.eval()  # the same BatchNorm statistics twice, by running ones
    network.backbone.pair_embedding.eval()
    packed = logits_of(network, jets)
    dense = network.forward_padded(jets.padded(9))["classes"]
    torch.testing.assert_close(packed, dense, rtol=0, atol=1e-10)


@pytest.mark.parametrize("max_pairs", [None, 1, 500])
@pytest.mark.parametrize("max_rows", [1, 7, 64, 100_000])
def test_groups_hold_every_jet_once_whatever_their_size(max_rows, max_pairs):
    jets = packed_jets(LENGTHS)
    offsets = jets.main.offsets
    groups = group_jets(jets.main.layout, GroupSize(max_rows, max_pairs, 128))
    assert sorted(torch.cat([group.jets for group in groups]).tolist()) == list(range(len(LENGTHS)))
    for group in groups:
        for index, jet in enumerate(group.jets.tolist()):
            rows = group.rows[index] if group.mask is None else group.rows[index][group.mask[index]]
            assert rows.tolist() == list(range(offsets[jet], offsets[jet + 1]))
        num_jets, num_slots = group.rows.shape
        assert num_jets == 1 or num_jets * num_slots <= max_rows
        assert num_jets == 1 or num_jets * num_slots**2 <= (max_pairs or 10**9)
    values = torch.randn(int(offsets[-1]), 3)
    assert torch.equal(join_rows(split_rows(values, groups), groups, jets.main.layout), values)


@pytest.mark.parametrize("kind", ["symmetric", "distinct", "ordered"])
def test_pairs_are_those_of_a_loop(kind):
    offsets = torch.tensor([0, 3, 3, 5, 6])
    layout = Layout.of_offsets(offsets)
    pairs = pack_pairs(layout, kind)
    loops = [
        [
            (a + i, a + j)
            for i in range(b - a)
            for j in range(b - a)
            if kind == "ordered" or i > j or (i == j and kind == "symmetric")
        ]
        for a, b in itertools.pairwise(offsets.tolist())
    ]
    assert list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == list(
        itertools.chain(*loops)
    )
    assert pairs.offsets.tolist() == list(itertools.accumulate([0, *map(len, loops)]))[:-1]
    values = torch.stack((pairs.first, pairs.second)).double()  # (2, N)
    groups = group_jets(layout, GroupSize(3, None, 128))
    for group, places in zip(groups, pairs.split(values, groups), strict=True):
        for index, jet in enumerate(group.jets.tolist()):
            size = int(pairs.lengths[jet])
            first, second = places[:, index, :size, :size]
            for i, j in itertools.product(range(size), repeat=2):
                expected = (i, j) if kind == "ordered" else (max(i, j), min(i, j))
                expected = [0, 0] if kind == "distinct" and i == j else [offsets[jet] + k for k in expected]
                assert [first[i, j], second[i, j]] == expected


def test_interleaved_rows_are_those_of_a_loop():
    offsets = [torch.tensor(numbers) for numbers in ([0, 2, 2, 3], [0, 0, 1, 3], [0, 1, 1, 1])]
    names = ["abc", "xyz", "u"]
    parts = {letters: torch.tensor([[ord(letter)] for letter in letters]) for letters in names}
    jets = interleave({name: Collection(parts[name], own) for name, own in zip(names, offsets, strict=True)})
    assert "".join(chr(row) for row in jets.join(parts)[:, 0]) == "abuxcyz"
    assert jets.layout.offsets.tolist() == jets.layout.host_offsets.tolist() == [0, 3, 4, 7]
    for name, part in parts.items():
        assert torch.equal(jets.rows_of(name, jets.join(parts)), part)


def test_triangle_and_square_agree():
    for size in (1, 2, 3, 128, 400):
        i, j = triangle(size, torch.device("cpu"))
        places = square(size, torch.device("cpu"))
        assert torch.equal(places[i, j], torch.arange(size * (size + 1) // 2))
        assert torch.equal(places, places.T)


# --- attention maps, against an explicit computation in numpy -------------------------------------------


def layer_norm(x, module):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + module.eps) * array(module.weight) + array(module.bias)


def linear(x, module):
    return x @ array(module.weight).T + array(module.bias)


def array(tensor):
    return tensor.detach().numpy()


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def batch_norm(x, module):
    scaled = (x - array(module.running_mean)) / np.sqrt(array(module.running_var) + module.eps)
    return scaled * array(module.weight) + array(module.bias)


def slow_attention(module, query, keys, bias):
    """Return the weights (H, Q, K) and the output, head by head and query by query."""
    width, num_heads = query.shape[-1], module.num_heads
    size = width // num_heads
    weight, offset = array(module.in_proj.weight), array(module.in_proj.bias)
    q, k, v = (
        x @ weight[n * width : (n + 1) * width].T + offset[n * width : (n + 1) * width]
        for n, x in enumerate((query, keys, keys))
    )
    maps, mixed = np.zeros((num_heads, len(q), len(k))), np.zeros_like(q)
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        for row in range(len(q)):
            scores = np.array([q[row, part] @ key[part] for key in k]) / math.sqrt(size)
            maps[head, row] = softmax(scores + bias[head, row])
            mixed[row, part] = maps[head, row] @ v[:, part]
    scaled = linear(mixed, module.out_proj) * np.repeat(array(module.head_scale), size)
    return maps, scaled


def slow_feed_forward(module, x):
    hidden = layer_norm(gelu(linear(layer_norm(x, module.norm), module.fc1)), module.hidden_norm)
    return linear(hidden, module.fc2) + array(module.residual_scale) * x


def slow_network(network, jet):
    """Return logits and attention maps of one jet, in numpy, straight from the paper."""
    backbone, jet = network.backbone, jet.main
    x = batch_norm(array(jet.features), backbone.particle_embedding.input_norm)
    for norm, layer in zip(
        backbone.particle_embedding.norms, backbone.particle_embedding.linears, strict=True
    ):
        x = gelu(linear(layer_norm(x, norm), layer))
    size = len(x)
    first, second = torch.arange(size).repeat_interleave(size), torch.arange(size).repeat(size)
    pairs = batch_norm(array(pair_features(jet.momenta, first, second)), backbone.pair_embedding.input_norm)
    for layer, norm in backbone.pair_embedding.layers:
        pairs = gelu(batch_norm(linear(pairs, layer), norm))
    bias = pairs.reshape(size, size, -1).transpose(2, 0, 1)
    maps, class_maps = [], []
    for block in backbone.blocks:
        weights, mixed = slow_attention(block.attention, *[layer_norm(x, block.norm)] * 2, bias)
        maps.append(weights)
        x = slow_feed_forward(block.feed_forward, x + layer_norm(mixed, block.attention_norm))
    token = array(backbone.class_token)[None]
    for block in backbone.class_blocks:
        keys = layer_norm(np.concatenate([token, x]), block.norm)
        weights, mixed = slow_attention(block.attention, token, keys, np.zeros((4, 1, 1 + size)))
        class_maps.append(weights[:, 0])
        token = slow_feed_forward(block.feed_forward, token + layer_norm(mixed, block.attention_norm))
    return (
        linear(layer_norm(token, backbone.norm), network.heads["classes"].output)[0],
        np.stack(maps),
        np.stack(class_maps),
    )


def test_attention_maps_equal_an_explicit_slow_computation():
    network, jets = small_network().eval(), packed_jets((5, 1, 9, 12, 2))
    inspections = list(inspect_jets(network, jets))
    with torch.inference_mode():
        logits = logits_of(network, jets)
    for index, inspection in enumerate(inspections):
        slow_logits, maps, class_maps = slow_network(network, one_jet(jets, index))
        np.testing.assert_allclose(inspection.attention, maps, rtol=0, atol=1e-10)
        np.testing.assert_allclose(inspection.class_attention, class_maps, rtol=0, atol=1e-10)
        np.testing.assert_allclose(inspection.logits, slow_logits, rtol=0, atol=1e-10)
        np.testing.assert_allclose(logits[index], slow_logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["part", "part_v3, sv pf lt", "part, pf sv jet"])
def test_inspection_gives_what_the_head_sees(case):
    network, jets = small_network(case).eval(), jets_for(case, LENGTHS)
    inspections = list(inspect_jets(network, jets))
    with torch.inference_mode():
        embeddings = network.embed(jets)
    torch.testing.assert_close(torch.stack([item.embedding for item in inspections]), embeddings)
    assert [item.attention.shape[-1] for item in inspections] == jets.lengths.tolist()
    with pytest.raises(ValueError, match="eval"):
        inspect_jets(network.train(), jets)


# --- dropout and trimming ------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_keeps_the_mean_and_drops_the_fraction(probability, dtype):
    torch.manual_seed(0)
    dropped = Dropout(probability)(torch.ones(1001, 1003, dtype=dtype))
    fraction = (dropped == 0).double().mean().item()
    assert fraction == pytest.approx(probability, abs=4 * math.sqrt(probability / 1e6))
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - probability)], rel=1e-4)
    rows, columns = (dropped == 0).double().mean(1), (dropped == 0).double().mean(0)
    expected_spread = math.sqrt(probability * (1 - probability) / 1000)
    for fractions in (rows, columns):  # no pattern along either axis
        assert fractions.std().item() == pytest.approx(expected_spread, rel=0.15)


def test_dropout_follows_the_seed_and_passes_gradients():
    x = torch.randn(50, 3, requires_grad=True)
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        results.append(Dropout(0.3)(x))
    assert torch.equal(*results)
    assert not torch.equal(results[0], Dropout(0.3)(x))
    results[0].sum().backward()
    torch.testing.assert_close(x.grad, results[0].detach() / x.detach())
    assert torch.equal(Dropout(0.3).eval()(x), x)


def test_neighbouring_dropout_masks_are_independent():
    torch.manual_seed(0)
    first, second = (Dropout(0.5)(torch.ones(100_000)) > 0 for _ in range(2))
    assert (first == second).double().mean().item() == pytest.approx(0.5, abs=0.01)
    half = len(first) // 2
    assert (first[:half] == first[half:]).double().mean().item() == pytest.approx(0.5, abs=0.01)


def test_trimming_cuts_long_jets_at_random():
    torch.manual_seed(0)
    lengths = torch.tensor([0, 1, 5, 5, 5, 5, 5, 5, 5, 40])
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    seen = set()
    for _ in range(200):
        kept, layout = trim_jets(Layout.of_offsets(offsets))
        new_offsets = layout.offsets
        assert torch.equal(new_offsets, layout.host_offsets)
        new_lengths = new_offsets.diff()
        assert torch.equal(new_lengths[:-1], lengths[:-1])
        assert 5 <= new_lengths[-1] <= 40
        assert torch.equal(kept, kept.unique())
        for jet in range(len(lengths)):
            rows = kept[new_offsets[jet] : new_offsets[jet + 1]]
            assert ((rows >= offsets[jet]) & (rows < offsets[jet + 1])).all()
        seen.add(tuple(kept[-3:].tolist()))
    assert len(seen) > 20  # which particles go is random


def test_every_collection_is_trimmed_for_itself():
    torch.manual_seed(0)
    jets = {"pf": packed_jets([3] * 9 + [60]).main, "sv": packed_jets([5] + [1] * 9).main}
    cuts = set()
    for _ in range(30):
        trimmed, kept = trim_collections(jets)
        for name, collection in jets.items():
            assert torch.equal(trimmed[name].features, collection.features[kept[name]])
        cuts.add((len(kept["pf"]) < 87, len(kept["sv"]) < 14))
    assert len(cuts) == 4  # each alone, both, none


def test_drop_path_leaves_out_changes_of_some_jets():
    torch.manual_seed(0)
    changes = DropPath(0.25)(torch.ones(4000, 3, 2))
    per_jet = changes[:, 0, 0]
    assert torch.equal(changes, per_jet[:, None, None].expand_as(changes))
    assert per_jet.unique().tolist() == pytest.approx([0, 4 / 3])
    assert (per_jet == 0).double().mean().item() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(DropPath(0.25).eval()(changes), changes)


def test_trimming_acts_in_training_only():
    network, jets = small_network(trim=True).eval(), packed_jets([3] * 9 + [60])
    plain = small_network().eval()
    torch.testing.assert_close(logits_of(network, jets), logits_of(plain, jets))
    assert logits_of(network.train(), jets).isfinite().all()


# --- initialisation, registry, export --------------------------------------------------------------------


def test_initialisation_follows_the_reference():
    torch.manual_seed(0)
    shape = packed_jets([1]).shape
    network = registry.build_network("part", ParticleTransformerConfig(), shape, {"classes": 10})
    weights = network.backbone.state_dict()
    for depth in (1, 8):
        block = f"blocks.{depth - 1}."
        bound = math.sqrt(6 / 256)
        assert weights[f"{block}attention.in_proj.weight"].abs().max() == pytest.approx(bound, rel=1e-2)
        shrunk = bound / math.sqrt(2 * depth)
        assert weights[f"{block}attention.out_proj.weight"].abs().max() == pytest.approx(shrunk, rel=1e-2)
        shrunk = math.sqrt(6 / 640) / math.sqrt(2 * depth)
        assert weights[f"{block}feed_forward.fc2.weight"].abs().max() == pytest.approx(shrunk, rel=1e-2)
    assert weights["class_blocks.0.attention.out_proj.weight"].abs().max() == pytest.approx(bound, rel=1e-2)
    assert weights["pair_embedding.linears.1.weight"].abs().max() == pytest.approx(1 / 8, rel=1e-2)
    assert weights["class_token"].std() == pytest.approx(0.02, rel=0.2)
    biases = [n for n in weights if n.endswith("bias") and "pair_embedding.linears" not in n]
    assert all((weights[name] == 0).all() for name in biases)
    head = network.heads["classes"].output
    assert head.weight.detach().abs().max() == pytest.approx(math.sqrt(6 / 138), rel=1e-2)
    assert (head.bias == 0).all()


def test_weights_without_values_are_not_drawn(monkeypatch):
    drawn = []
    monkeypatch.setattr(ParticleTransformer, "initialise", lambda self, heads: drawn.append(heads))
    shape, config = packed_jets([1]).shape, registry.network_config("part", SMALL_PART)
    with torch.device("meta"):
        Network("part", ParticleTransformer(config, shape), shape, {"classes": 10})
    assert not drawn
    Network("part", ParticleTransformer(config, shape), shape, {"classes": 10})
    assert len(drawn) == 1


def test_an_unknown_network_is_named():
    with pytest.raises(ConfigError, match=r"no network 'prat'.*did you mean 'part'"):
        registry.network_kind("prat")
    with pytest.raises(ConfigError, match="network part: width 100 must be a multiple|multiple of num_heads"):
        registry.network_config("part", {"width": 100})
    with pytest.raises(ConfigError, match="widht"):
        registry.network_config("part", {"widht": 64})


def test_a_users_network_is_found_by_its_entry_point(monkeypatch):
    kind = registry.NetworkKind(ParticleTransformerConfig, ParticleTransformer, SMALL_PART)

    class Point:
        name = "mine"

        def load(self):
            return kind

    def points(*, group, name="mine"):
        return [Point()] if (group, name) == ("partt.models", "mine") else []

    monkeypatch.setattr(registry, "entry_points", points)
    assert "mine" in registry.network_names()
    jets = packed_jets((3, 4), dtype=torch.float32)
    network = registry.build_network("mine", registry.network_config("mine"), jets.shape, {"classes": 10})
    assert logits_of(network, jets).shape == (2, 10)


def test_missing_inputs_are_named():
    jets = with_particles(packed_jets((3, 4)), momenta=None, points=None)
    for name, message in (
        ("part", "pf_vectors"),
        ("slim_xs", "pf_vectors"),
        ("gru", "pf_vectors"),
        ("particlenet", "pf_points"),
    ):
        with pytest.raises(ConfigError, match=message):
            small_network(name, jets)
    for name in ("part_plain", "pfn", "pcnn"):
        assert logits_of(small_network(name, jets), jets).shape == (2, 10)


def test_networks_of_one_collection_refuse_more():
    two = InputShape({"pf": CollectionShape(7, has_momenta=True), "sv": CollectionShape(3, has_momenta=True)})
    for name, kind in (("pcnn", "PCNN"), ("recurrent", "Recurrent")):
        with pytest.raises(
            ConfigError, match=rf"{kind} takes one collection of particles, found pf, sv; part,"
        ):
            registry.build_network(name, registry.network_config(name), two, {"classes": 2})


def test_networks_of_several_collections_name_what_one_of_them_lacks():
    two = InputShape(
        {"pf": CollectionShape(7, has_momenta=True, num_coordinates=2), "sv": CollectionShape(3)}
    )
    for name, message in (("part", "sv_vectors"), ("slim_s", "sv_vectors"), ("particlenet", "sv_points")):
        with pytest.raises(ConfigError, match=message):
            registry.build_network(name, registry.network_config(name), two, {"classes": 2})


def test_networks_of_particles_and_of_jets_refuse_each_others_inputs():
    jet_level = InputShape({}, {"jet_features": 3})
    with pytest.raises(ConfigError, match="ParticleTransformer takes particles: add the input pf_features"):
        registry.build_network("part", registry.network_config("part"), jet_level, {"classes": 2})
    both = InputShape({"pf": CollectionShape(7)}, {"jet_features": 3})
    with pytest.raises(ConfigError, match="mlp takes jet-level inputs only, found pf"):
        registry.build_network("mlp", registry.network_config("mlp"), both, {"classes": 2})


def test_heads_have_a_dropout_for_each_hidden_layer():
    network = small_network(head={"hidden_widths": [8, 6], "dropout": [0.1, 0.2]})
    layers = list(network.heads["classes"].hidden)
    assert [layer.p for layer in layers if isinstance(layer, torch.nn.Dropout)] == [0.1, 0.2]
    with pytest.raises(ConfigError, match="1 dropouts for 2 hidden layers"):
        small_network(head={"hidden_widths": [8, 6], "dropout": [0.1]})


def test_older_keys_of_the_head_are_read():
    for name in ("particlenet", "pcnn"):
        older = registry.network_config(name, {"hidden_width": 7})
        default = registry.network_config(name).head
        assert older.head == default.replace(hidden_widths=(7,))
        assert registry.network_config(name, {"dropout": 0.5}).head == default.replace(dropout=0.5)
        with pytest.raises(ConfigError, match="not both"):
            registry.network_config(name, {"dropout": 0.5, "head": {}})


def test_self_pairs_of_positions_cannot_be_left_out():
    with pytest.raises(ConfigError, match="self_pairs: false is not possible with pair_features: xyzt"):
        registry.network_config("part", {"pair_features": "xyzt", "self_pairs": False})


def test_the_recurrent_network_has_two_cells():
    jets = packed_jets(LENGTHS)
    logits = [logits_of(small_network(cell).eval(), jets) for cell in ("gru", "lstm")]
    assert not torch.allclose(*logits)


def test_the_padded_twin_can_be_exported():
    class Padded(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, features, momenta, mask):
            particles = PaddedCollection(features, mask, momenta)
            return self.network.forward_padded(PaddedInputs({"pf": particles}))["classes"]

    def tensors(inputs, num_slots):
        particles = inputs.padded(num_slots).main
        return particles.features, particles.momenta, particles.mask

    network = small_network().eval()
    jets, batch, length = packed_jets((5, 1, 9)), torch.export.Dim("batch"), torch.export.Dim("length", min=2)
    shapes = ({0: batch, 1: length},) * 3
    program = torch.export.export(Padded(network), tensors(jets, 12), dynamic_shapes=shapes, strict=False)
    more = packed_jets((0, 7, 31, 2), seed=1)
    torch.testing.assert_close(program.module()(*tensors(more, 40)), logits_of(network, more))


def test_gradients_pass_in_evaluation_mode():
    network, jets = small_network().eval(), packed_jets(LENGTHS)
    logits_of(network, jets).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
