"""The kernel of evaluation equals torch's."""

import pytest
import torch
from torch.nn import functional

from partt.model.linear import Linear


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("shape", [(7, 16), (2, 3, 16), (0, 16)])
def test_equals_torch(shape, gelu):
    torch.manual_seed(1)
    layer, x = Linear(16, 8), torch.randn(shape)
    expected = functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    expected = (functional.gelu(expected) if gelu else expected).float()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, gelu=gelu), expected.detach())
        strided = x.transpose(0, -2).contiguous().transpose(0, -2)
        torch.testing.assert_close(layer(strided, gelu=gelu), expected.detach())
    torch.testing.assert_close(layer(x, gelu=gelu), expected)
    assert layer(x, gelu=gelu).requires_grad
