"""Multiply-adds, against counts by hand."""

import pytest
import torch

from partt.model.multiply_adds import count_multiply_adds
from small_networks import packed_jets, small_network

LENGTHS = [5, 30, 17, 60]


def test_a_deep_set():
    """Layers 17 -> 16 for each particle, 16 -> 16 -> 10 for each jet, and nothing for padding."""
    expected = sum(LENGTHS) * 17 * 16 + len(LENGTHS) * (16 * 16 + 16 * 10)
    assert count_multiply_adds(small_network("pfn"), packed_jets(LENGTHS)) == expected


@pytest.mark.parametrize(("case", "num_gates"), [("gru", 3), ("lstm", 4)])
def test_a_recurrent_network(case, num_gates):
    """Two layers of width 8: each gate sees the input and the state."""
    expected = sum(LENGTHS) * num_gates * 8 * (17 + 8 + 8 + 8) + len(LENGTHS) * 8 * 10
    assert count_multiply_adds(small_network(case), packed_jets(LENGTHS)) == expected


@pytest.mark.parametrize("num_pairs", [True, False])
def test_a_block_of_the_particle_transformer(num_pairs):
    """q, k, v, output and feed-forward of each particle; scores and means of each pair in all heads together."""
    case = "part" if num_pairs else "part_plain"
    inputs = packed_jets([20] * 6)
    two, three = (count_multiply_adds(small_network(case, num_blocks=n), inputs) for n in (2, 3))
    assert three - two == 6 * (20 * (4 * 16 * 16 + 2 * 16 * 32) + 2 * 20 * 20 * 16)


def test_a_block_of_slim():
    """Four components of each vector channel, and the scalars; 4 tokens beside the particles."""
    inputs = packed_jets([20] * 6)
    two, three = (count_multiply_adds(small_network("slim_m", num_blocks=n), inputs) for n in (2, 3))
    vectors, scalars = 4 * 4 * 4 * (3 + 1 + 3 * 2 + 2), 16 * 16 * (3 + 1 + 2 * 2 + 2)
    assert three - two == 6 * 24 * (vectors + scalars + 2 * 24 * (4 * 4 + 16))


def test_counting_changes_nothing():
    network = small_network().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    state = torch.get_rng_state()
    count_multiply_adds(network, packed_jets(LENGTHS))
    assert network.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
