"""Prepacked weights give the same results as nn.Linear, also after the weights have changed."""

import pytest
import torch

from partt.model.cpu import prepacked_linear
from partt.model.cpu.prepacked_linear import MIN_ROWS, Linear, is_available, prepacked_weights
from partt.model.registry import build_network, network_config
from small_networks import logits_of, packed_jets, with_particles

ROWS = torch.randn(4, MIN_ROWS // 4, 128, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return Linear(128, 512).eval()


def packed(layer, x=ROWS):
    """Return the layer's output, and whether its weight was packed."""
    with prepacked_weights():
        return layer(x), layer in prepacked_linear._this_thread.weights


def expected(layer, x=ROWS):
    return torch.nn.functional.linear(x, layer.weight, layer.bias)


@pytest.mark.skipif(not is_available(), reason="torch without oneDNN")
def test_full_groups_are_packed_and_equal(layer):
    with torch.inference_mode():
        y, was_packed = packed(layer)
        assert was_packed
        torch.testing.assert_close(y, expected(layer), rtol=1e-5, atol=1e-5)
        layer.weight.data.mul_(2)  # a change that leaves no trace in the tensor's version
        torch.testing.assert_close(packed(layer)[0], expected(layer), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "rows", "grad"),
    [(torch.float64, ROWS, False), (torch.float32, ROWS[:, :10], False), (torch.float32, ROWS, True)],
    ids=["float64", "few rows", "gradients"],
)
def test_what_is_not_packed(layer, dtype, rows, grad):
    layer, rows = layer.to(dtype), rows.to(dtype)
    with torch.set_grad_enabled(grad):
        y, was_packed = packed(layer, rows)
    assert not was_packed
    assert torch.equal(y, expected(layer, rows))
    assert y.requires_grad == grad


@pytest.mark.skipif(not is_available(), reason="torch without oneDNN")
def test_network_of_full_groups_equals_its_float64_twin(monkeypatch):
    torch.manual_seed(0)
    jets = packed_jets(torch.randint(40, 50, (64,)).tolist(), dtype=torch.float32)
    momentum = 10 * torch.randn(len(jets.main.features), 3)  # no pairs whose mass is rounding
    momenta = torch.cat((momentum, momentum.norm(dim=1, keepdim=True) + 0.1), dim=1)
    jets = with_particles(jets, momenta=momenta)
    network = build_network("part", network_config("part"), jets.shape, {"classes": 10}).eval()
    with torch.inference_mode():
        logits = logits_of(network, jets)
        monkeypatch.setattr(prepacked_linear, "MIN_ROWS", 10**9)
        plain = logits_of(network, jets)
        assert not torch.equal(logits, plain)  # prepacked weights were used
        exact = logits_of(network.double(), jets.to(torch.float64))
    torch.testing.assert_close(logits.double(), exact, rtol=0, atol=2e-5)
