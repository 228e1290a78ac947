"""A batch equals its jets; the order of particles does not matter; odd jets harm nobody."""

import pytest
import torch
from make_jets import PackedJets, make_jets, randomise
from torch.nn import functional

from partt.model.attention import ClassAttention, SelfAttention
from partt.model.blocks import ClassBlock, GatedFeedForward, NormFormerFeedForward, ParticleBlock
from partt.model.embeddings import PairEmbedding, ParticleEmbedding
from partt.model.particle_transformer_config import ParticleTransformerConfig
from partt.model.registry import build_network, network_config, network_names

SMALL = {"num_blocks": 2, "num_class_blocks": 1, "width": 16, "num_heads": 4, "feed_forward_width": 32}
SMALL |= {"embedding_widths": (16, 32), "pair_widths": (8, 8)}
LENGTHS = (5, 1, 30, 0, 2, 17, 128, 18)


def small_network(name="part", **options):
    torch.manual_seed(0)
    small = SMALL if name == "part" else {k: v for k, v in SMALL.items() if k != "pair_widths"}
    config = network_config(name, {**small, **options} if name in {"part", "part_plain"} else options)
    network = build_network(name, config, 17, 10).double()
    randomise(network)
    return network


@pytest.fixture(params=network_names())
def name(request):
    return request.param


def test_a_batch_equals_its_jets_one_by_one(name):
    network, jets = small_network(name).eval(), make_jets(LENGTHS)
    with torch.inference_mode():
        together = network(*jets.inputs)
        alone = torch.cat([network(*jets.jet(index).inputs) for index in range(len(LENGTHS))])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted({*network_names()} - {"pcnn"}))  # P-CNN reads the input order
def test_the_order_of_particles_does_not_matter(name):
    network, jets = small_network(name).eval(), make_jets(LENGTHS)
    generator = torch.Generator().manual_seed(3)
    rows = torch.cat(
        [
            start + torch.randperm(int(end - start), generator=generator)
            for start, end in zip(jets.offsets, jets.offsets[1:], strict=False)
        ]
    )
    with torch.inference_mode():
        changed = network(*jets.rows(rows).inputs)
        torch.testing.assert_close(changed, network(*jets.inputs), rtol=0, atol=1e-10)


def test_rotations_about_z_and_boosts_along_z_change_no_logits():
    network, jets = small_network().eval(), make_jets(LENGTHS)
    px, py, pz, energy = jets.momenta.unbind(1)
    moved = torch.stack((py, -px, 1.25 * pz + 0.75 * energy, 0.75 * pz + 1.25 * energy), dim=1)
    moved_jets = PackedJets(jets.particles, moved, jets.offsets, jets.points)
    with torch.inference_mode():
        torch.testing.assert_close(network(*moved_jets.inputs), network(*jets.inputs), rtol=0, atol=1e-5)


# --- module by module --------------------------------------------------------------------------------

CONFIG = ParticleTransformerConfig(**SMALL)
PERMUTATION = torch.tensor([3, 0, 4, 1, 2])


@pytest.mark.parametrize("block", ["normformer", "swiglu"])
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


@pytest.mark.parametrize("kind", [NormFormerFeedForward, GatedFeedForward])
def test_feed_forward_treats_each_particle_for_itself(kind):
    module = kind(16, 32, 0.1, 0.1).double().eval()
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


# --- odd jets ----------------------------------------------------------------------------------------

ODD = [
    [0, 0, 0, 0],
    [0, 0, 5, 5],
    [0, 0, -5, 1],
    [3, 4, 0, 0],
    [3, 4, 0, 4.9],
    [3, 4, 12, 13],
    [3, 4, 12, 13],
]


def with_odd_jet(jets):
    """Add a jet of awkward momenta, one without any particle, before and after the others."""
    odd = torch.tensor(ODD, dtype=jets.momenta.dtype)
    lengths = torch.tensor([0, len(ODD), *jets.offsets.diff().tolist(), 0])
    return PackedJets(
        torch.cat((jets.particles.new_zeros(len(ODD), jets.particles.shape[1]), jets.particles)),
        torch.cat((odd, jets.momenta)),
        functional.pad(lengths.cumsum(0), (1, 0)),
        torch.cat((jets.points.new_zeros(len(ODD), 2), jets.points)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_odd_jets_give_finite_logits_and_gradients_and_disturb_nobody(name, dtype):
    network, jets = small_network(name).to(dtype), make_jets(LENGTHS, dtype=dtype)
    odd = with_odd_jet(jets)
    network.train()
    torch.manual_seed(0)
    logits = network(*odd.inputs)
    functional.cross_entropy(logits, torch.arange(len(logits)) % 10).backward()
    assert logits.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    assert all(buffer.isfinite().all() for buffer in network.buffers())
    network.eval()
    with torch.inference_mode():
        neighbours = network(*odd.inputs)[2:-1]
        tolerance = 1e-10 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(neighbours, network(*jets.inputs), rtol=0, atol=tolerance)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lengths", [(0,), (0, 0, 0), (1,), (0, 1), (2,)])
def test_almost_empty_batches(name, lengths, training):
    network, jets = small_network(name).train(training), make_jets(lengths)
    logits = network(*jets.inputs)
    assert logits.shape == (len(lengths), 10)
    assert logits.isfinite().all()


def test_gradients_of_the_inputs_are_finite():
    network, jets = small_network().eval(), with_odd_jet(make_jets(LENGTHS))
    jets.particles.requires_grad_(True)
    jets.momenta.requires_grad_(True)
    network(*jets.inputs).square().sum().backward()
    assert jets.particles.grad.isfinite().all()
    assert jets.momenta.grad.isfinite().all()
