"""BatchNorm -> GELU -> Linear in chunks equals torch's modules one after the other."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from partt.model.cpu import cached_layer
from partt.model.cpu.cached_layer import norm_gelu_linear


@pytest.mark.parametrize("num_rows", [2, 7, 8, 30])
def test_equals_torch(num_rows, monkeypatch):
    monkeypatch.setattr(cached_layer, "ROWS_IN_CACHE", 8)
    torch.manual_seed(1)
    norm, linear = nn.BatchNorm1d(5).double(), nn.Linear(5, 3).double()
    nn.init.uniform_(norm.weight, -1, 1)
    nn.init.uniform_(norm.bias, -1, 1)
    x = (3 * torch.randn(num_rows, 5, dtype=torch.float64) + 7).requires_grad_()
    weights = torch.randn(num_rows, 3, dtype=torch.float64)
    results = []
    for compute in (norm_gelu_linear, lambda x, norm, linear: linear(functional.gelu(norm(x)))):
        layers = copy.deepcopy(nn.ModuleList([norm, linear]))
        y = compute(x, *layers)
        gradients = torch.autograd.grad((y * weights).sum(), [x, *layers.parameters()])
        results.append((y, *gradients, *layers.buffers()))
    torch.testing.assert_close(*results, rtol=0, atol=1e-10)
