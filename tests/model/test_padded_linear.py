"""Linear layers by oneDNN on padded rows equal torch's, values and gradients, and are used where they may be."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from partt.model.cpu import padded_linear
from partt.model.cpu.padded_linear import MIN_ROWS, MIN_WIDTH, STEP, is_available, is_faster, linear

pytestmark = pytest.mark.skipif(not is_available(), reason="torch without oneDNN")
C, D = MIN_WIDTH, MIN_WIDTH + 40
is_zen_5 = padded_linear.is_zen_5.__wrapped__


@pytest.fixture(autouse=True)
def zen_5(monkeypatch):
    monkeypatch.setattr(padded_linear, "is_zen_5", lambda: True)


@pytest.mark.parametrize(
    ("vendor", "family", "expected"),
    [("AuthenticAMD", 26, True), ("AuthenticAMD", 25, False), ("GenuineIntel", 26, False)],
)
def test_other_cpus_use_mkl(monkeypatch, vendor, family, expected):
    one = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: a\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"{one}\n{one}")
    assert is_zen_5() == expected
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "Processor: ARM\n")
    assert not is_zen_5()
    monkeypatch.setattr(padded_linear, "is_zen_5", is_zen_5)
    assert not is_faster(torch.randn(300, C), torch.randn(D, C))


def tensors(shape, bias, dtype=torch.float32):
    torch.manual_seed(0)
    x, weight = torch.randn(*shape, C, dtype=dtype), torch.randn(D, C, dtype=dtype)
    return [x, weight, torch.randn(D, dtype=dtype) if bias else None]


def results(function, arguments):
    """Return the output and the gradients of all arguments, which are not frozen."""
    leaves = [each if each is None else each.clone().requires_grad_() for each in arguments]
    y = function(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None]
    return y, *torch.autograd.grad((y * torch.linspace(-1, 1, D, dtype=y.dtype)).sum(), wanted)


@pytest.mark.parametrize("shape", [(4 * STEP,), (MIN_ROWS + 1,), (7, 43)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_torch(shape, bias):
    arguments = tensors(shape, bias)
    assert is_faster(*arguments[:2])
    computed = results(linear, arguments)
    exact = results(functional.linear, [None if each is None else each.double() for each in arguments])
    for ours, theirs in zip(computed, exact, strict=True):
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-4)


def test_a_frozen_weight_and_inputs_without_gradient(monkeypatch):
    products = []
    real = padded_linear.product
    monkeypatch.setattr(padded_linear, "product", lambda *args: products.append(args) or real(*args))
    x, weight, bias = tensors((300,), True)
    bias.requires_grad_()
    linear(x, weight, bias).sum().backward()
    assert len(products) == 1  # only that of the forward pass
    torch.testing.assert_close(bias.grad, torch.full((D,), 300.0))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_left_to_torch(dtype):
    x, weight, bias = tensors((MIN_ROWS - 1,) if dtype == torch.float32 else (300,), True, dtype)
    assert not is_faster(x, weight)
    assert torch.equal(linear(x, weight, bias), functional.linear(x, weight, bias))
    wide = torch.randn(300, C)
    assert is_faster(wide, torch.randn(D, C))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_faster(wide, torch.randn(D, C))
