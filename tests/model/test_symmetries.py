"""Jets are independent; the order of particles does not matter; unusual jets do not affect other jets."""

import itertools
import operator
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from partt.errors import ConfigError
from partt.jet_inputs import JetInputs
from partt.model.attention import ClassAttention, SelfAttention
from partt.model.blocks import STYLES, ClassBlock, ParticleBlock
from partt.model.embeddings import PairEmbedding, ParticleEmbedding
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.registry import network_names
from small_networks import (
    ALL,
    OTHERS,
    SMALL_PART,
    jets_for,
    logits_of,
    one_jet,
    packed_jets,
    randomise,
    small_network,
    with_particles,
)

LENGTHS = (5, 1, 30, 0, 2, 17, 128, 18)


def test_there_is_a_small_one_of_every_network():
    assert {name for name, _ in ALL.values()} == set(network_names())


@pytest.fixture(params=ALL)
def name(request):
    return request.param


def test_a_batch_equals_its_jets_one_by_one(name):
    network, jets = small_network(name).eval(), jets_for(name, LENGTHS)
    with torch.inference_mode():
        together = logits_of(network, jets)
        alone = torch.cat([logits_of(network, one_jet(jets, index)) for index in range(len(LENGTHS))])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def permuted(collection):
    """Return a collection with the particles of each jet in random order."""
    generator = torch.Generator().manual_seed(3)
    rows = [
        start + torch.randperm(int(end - start), generator=generator)
        for start, end in itertools.pairwise(collection.offsets)
    ]
    return collection.with_rows(operator.itemgetter(torch.cat(rows)))


@pytest.mark.parametrize("name", [name for name in ALL if "pcnn" not in name])  # P-CNN reads the input order
def test_the_order_of_particles_in_a_collection_does_not_matter(name):
    network, jets = small_network(name).eval(), jets_for(name, LENGTHS)
    for exchanged in jets.collections:
        changed = {**jets.collections, exchanged: permuted(jets.collections[exchanged])}
        with torch.inference_mode():
            logits = logits_of(network, JetInputs(changed, jets.jet_features))
            torch.testing.assert_close(logits, logits_of(network, jets), rtol=0, atol=1e-10)


def test_rotations_about_z_and_boosts_along_z_change_no_logits():
    network, jets = small_network().eval(), packed_jets(LENGTHS)
    px, py, pz, energy = jets.main.momenta.unbind(1)
    moved = torch.stack((py, -px, 1.25 * pz + 0.75 * energy, 0.75 * pz + 1.25 * energy), dim=1)
    moved_jets = with_particles(jets, momenta=moved)
    with torch.inference_mode():
        torch.testing.assert_close(
            logits_of(network, moved_jets), logits_of(network, jets), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith(("gru", "lstm", "mlp"))])
def test_tokens_follow_their_particles(name):
    """The token of a particle does not depend on the other jets of the batch, nor on the order."""
    network, jets = small_network(name).eval(), jets_for(name, LENGTHS)
    with torch.inference_mode():
        tokens = network.tokens(jets)
        alone = torch.cat([network.tokens(one_jet(jets, jet)) for jet in range(len(LENGTHS)) if LENGTHS[jet]])
    assert tokens.shape[0] == sum(LENGTHS)
    torch.testing.assert_close(tokens, alone, rtol=0, atol=1e-10)
    if "pcnn" not in name:  # which reads the input order
        flipped = JetInputs(
            {key: backwards(collection) for key, collection in jets.collections.items()},
            {key: values.flip(0) for key, values in jets.jet_features.items()},
        )
        with torch.inference_mode():
            torch.testing.assert_close(network.tokens(flipped), tokens.flip(0), rtol=0, atol=1e-10)


def backwards(collection):
    """Return a collection with the jets, and the particles of each, in reverse order."""
    offsets = functional.pad(collection.lengths.flip(0).cumsum(0), (1, 0))
    return collection.with_rows(lambda values: values.flip(0), offsets)


@pytest.mark.parametrize("name", [name for name in OTHERS if "," in name])
def test_every_input_matters(name):
    """Every collection and every group of jet-level features changes the logits."""
    network, jets = small_network(name).eval(), jets_for(name, LENGTHS)
    others = jets_for(name, LENGTHS, seed=1)
    with torch.inference_mode():
        logits = logits_of(network, jets)
        for key in jets.collections:
            changed = JetInputs({**jets.collections, key: others.collections[key]}, jets.jet_features)
            assert (logits_of(network, changed) - logits).abs().max() > 1e-4, key
        for key in jets.jet_features:
            changed = JetInputs(jets.collections, {**jets.jet_features, key: others.jet_features[key]})
            assert (logits_of(network, changed) - logits).abs().max() > 1e-4, key


def test_a_recurrent_network_has_no_tokens():
    with pytest.raises(ConfigError, match="no embeddings of particles"):
        small_network("gru").tokens(packed_jets([3]))


def test_trimmed_particles_have_zero_tokens():
    network, jets = small_network(trim=True).train(), packed_jets([3] * 9 + [60])
    torch.manual_seed(0)
    tokens = [network.tokens(jets) for _ in range(20)]
    missing = [int((token == 0).all(dim=1).sum()) for token in tokens]
    assert max(missing) > 0
    assert all(len(token) == 87 and (token[:27] != 0).any(dim=1).all() for token in tokens)


# --- module by module --------------------------------------------------------------------------------

CONFIG = ParticleTransformerConfig(**SMALL_PART)
PERMUTATION = torch.tensor([3, 0, 4, 1, 2])


@pytest.mark.parametrize("block", STYLES)
def test_particle_blocks_are_equivariant(block):
    module = ParticleBlock(CONFIG.model_copy(update={"block": block})).double().eval()
    randomise(module)
    x, bias = torch.randn(3, 5, 16, dtype=torch.float64), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    permuted = module(x[:, PERMUTATION], bias[:, :, PERMUTATION][:, :, :, PERMUTATION])
    torch.testing.assert_close(permuted, module(x, bias)[:, PERMUTATION])


def test_self_attention_is_equivariant():
    module = SelfAttention(16, 4, scale_heads=True, dropout=0.1).double().eval()
    randomise(module)
    x, bias = torch.randn(3, 5, 16, dtype=torch.float64), torch.randn(4, 3, 5, 5, dtype=torch.float64)
    permuted = module(x[:, PERMUTATION], bias[:, :, PERMUTATION][:, :, :, PERMUTATION])
    torch.testing.assert_close(permuted, module(x, bias)[:, PERMUTATION])


@pytest.mark.parametrize("block", STYLES)
def test_feed_forward_treats_each_particle_for_itself(block):
    config = CONFIG.model_copy(update={"block": block})
    module = STYLES[block].feed_forward(config, 0.1, 0.1).double().eval()
    randomise(module)
    x = torch.randn(3, 5, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x)[1, 2], module(x[1, 2]))


def test_class_attention_and_block_are_invariant():
    token, x = torch.randn(3, 16, dtype=torch.float64), torch.randn(3, 5, 16, dtype=torch.float64)
    attention = ClassAttention(16, 4, scale_heads=True).double()
    block = ClassBlock(CONFIG).double()
    for module in (attention, block):
        randomise(module)
    torch.testing.assert_close(attention(token, x[:, PERMUTATION], None), attention(token, x, None))
    torch.testing.assert_close(block(token, x[:, PERMUTATION], None), block(token, x, None))


def test_embeddings_treat_each_particle_and_pair_for_itself():
    particles = ParticleEmbedding(17, (16, 32, 16)).double().eval()
    pairs = PairEmbedding(4, (8, 8, 4), last_activation=True).double().eval()
    for module, width in ((particles, 17), (pairs, 4)):
        randomise(module)
        x = torch.randn(5, width, dtype=torch.float64)
        y, permuted = module(x), module(x[PERMUTATION])
        expected = y[PERMUTATION] if module is particles else y[:, PERMUTATION]
        torch.testing.assert_close(permuted, expected)


def test_folded_pair_embedding_equals_its_layers():
    module = PairEmbedding(4, (8, 8, 4), last_activation=False).double().eval()
    randomise(module)
    features = torch.randn(9000, 4, dtype=torch.float64)  # more than one chunk
    x = module.input_norm(features)
    for index, (linear, norm) in enumerate(module.layers):
        x = norm(linear(x))
        x = functional.gelu(x) if index < 2 else x
    torch.testing.assert_close(module(features), x.T)


# --- unusual jets -------------------------------------------------------------------------------------

ODD = [
    [
        [0, 0, 0, 0],
        [0, 0, 5, 5],
        [0, 0, -5, 1],
        [3, 4, 0, 0],
        [3, 4, 0, 4.9],
        [3, 4, 12, 13],
        [3, 4, 12, 13],
    ],
    [[300, 400, 1200, 1300], [3, 4, 12, 13], [30, 40, 120, 130]],  # massless and collinear
    [[6e6, 0, 8e6, 1e7], [6e6, 1e3, 8e6, 1e7]],  # GeV
    [[0, 0, 1e-12, 1e-12]],
]
NUM_ODD = 1 + len(ODD)  # jets before the others


def with_odd_jets(jets):
    """Add jets of awkward momenta and ones without any particle, before and after the others."""
    rows = [row for jet in ODD for row in jet]
    collections = {}
    for name, particles in jets.collections.items():
        lengths = torch.tensor([0, *map(len, ODD), *particles.lengths.tolist(), 0])
        collections[name] = replace(
            particles,
            features=functional.pad(particles.features, (0, 0, len(rows), 0)),
            momenta=torch.cat((torch.tensor(rows, dtype=particles.momenta.dtype), particles.momenta)),
            offsets=functional.pad(lengths.cumsum(0), (1, 0)),
            points=functional.pad(particles.points, (0, 0, len(rows), 0)),
        )
    groups = {name: functional.pad(values, (0, 0, NUM_ODD, 1)) for name, values in jets.jet_features.items()}
    return JetInputs(collections, groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_odd_jets_give_finite_logits_and_gradients_and_disturb_nobody(name, dtype):
    network, jets = small_network(name).to(dtype), jets_for(name, LENGTHS, dtype=dtype)
    odd = with_odd_jets(jets)
    network.train()
    torch.manual_seed(0)
    logits = logits_of(network, odd)
    functional.cross_entropy(logits, torch.arange(len(logits)) % 10).backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    assert all(buffer.isfinite().all() for buffer in network.buffers())
    network.eval()
    with torch.inference_mode():
        neighbours = logits_of(network, odd)[NUM_ODD:-1]
        tolerance = 1e-10 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(neighbours, logits_of(network, jets), rtol=0, atol=tolerance)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lengths", [(0,), (0, 0, 0), (1,), (0, 1), (2,)])
def test_almost_empty_batches(name, lengths, training):
    network, jets = small_network(name).train(training), jets_for(name, lengths)
    logits = logits_of(network, jets)
    assert logits.shape == (len(lengths), 10)
    assert logits.isfinite().all()


def test_gradients_of_the_inputs_are_finite():
    network, jets = small_network().eval(), with_odd_jets(packed_jets(LENGTHS))
    jets.main.features.requires_grad_(True)
    jets.main.momenta.requires_grad_(True)
    logits_of(network, jets).square().sum().backward()
    assert jets.main.features.grad.isfinite().all()
    assert jets.main.momenta.grad.isfinite().all()
