"""precision: bfloat16 without a GPU: torch's rules of mixed precision applied on the meta device.

torch.autocast does not know that device, and CPUs may lack bfloat16 products; so the rules for GPUs are
applied here to the functions that networks call. Operations refuse operands of two types there, too.
"""

import re
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from partt.model import lorentz_layers
from partt.model.baselines import particlenet
from partt.model.grouping import sum_over_jets
from partt.model.precision import full_precision
from partt.training.objectives import jet_observables
from partt.training.objectives.jet_observables import POWERS
from small_networks import ALL, jets_for, logits_of, small_network
from small_objectives import CASE, LENGTHS, OBJECTIVES, batch_of, small_objective

AUTOCAST = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()


def named_by_torch(*lists: str) -> set[str]:
    """Return the functions in some of the lists of torch's autocast."""
    found = [re.search(rf"#define AT_FORALL_{name}\(_\)(.*?)\n\n", AUTOCAST, re.DOTALL) for name in lists]
    return {function for each in found for function in re.findall(r"_\((\w+)", each[1])}


# computed in bfloat16, in float32, in the widest type of the operands; by torch's lists, and what calls these
LOWER = named_by_torch("LOWER_PRECISION_FP") | {"__matmul__", "__rmatmul__", "gru", "lstm"}
FLOAT32 = named_by_torch("FP32", "FP32_SET_OPT_DTYPE") | {"cross_entropy", "norm", "square", "__pow__"}
WIDEST = named_by_torch("PROMOTE") | {"cat", "stack"}


def test_the_lists_of_torch_are_found():
    assert {"linear", "matmul", "baddbmm", "scaled_dot_product_attention"} <= LOWER
    assert {"exp", "layer_norm", "log_softmax", "rms_norm", "smooth_l1_loss", "softmax", "sum"} <= FLOAT32
    assert {"addcmul", "index_put", "scatter_add"} <= WIDEST


class MixedPrecision(TorchFunctionMode):
    """Casts operands as torch.autocast does on a GPU."""

    def __init__(self):
        super().__init__()
        self.is_on = True
        self.products = []  # name and type of every product

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, kwargs or {}
        dtypes = {item.dtype for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)}
        target = None
        if self.is_on and name in LOWER:
            target = torch.bfloat16
        elif self.is_on and (name in FLOAT32 or (name in WIDEST and torch.float32 in dtypes)):
            target = torch.float32
        if target is not None:
            args, kwargs = tree_map(lambda item: _cast(item, target), (args, kwargs))
        if name in LOWER:
            operands = [item for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
            self.products.append((name, {item.dtype for item in operands if item.is_floating_point()}))
        return func(*args, **kwargs)


def _cast(item, dtype):
    is_cast = isinstance(item, Tensor) and item.dtype in {torch.float32, torch.bfloat16}
    return item.to(dtype) if is_cast else item


@pytest.fixture
def mixed(monkeypatch):
    mode = MixedPrecision()

    @contextmanager
    def switched_off(tensor):
        assert tensor.device.type == "meta"
        mode.is_on, before = False, mode.is_on
        yield
        mode.is_on = before

    for module in (lorentz_layers, particlenet, jet_observables):
        monkeypatch.setattr(module, "full_precision", switched_off)
    return mode


@pytest.mark.parametrize("case", ALL)
def test_every_network_takes_both_precisions(mixed, case):
    network = small_network(case).float().to("meta").train()
    jets = jets_for(case, LENGTHS, dtype=torch.float32).to("meta")
    with mixed:
        logits = logits_of(network, jets)
        logits.float().square().mean().backward()
    assert logits.dtype == torch.bfloat16
    assert any(dtypes == {torch.bfloat16} for _, dtypes in mixed.products)
    assert all(len(dtypes) == 1 for _, dtypes in mixed.products)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    assert {parameter.grad.dtype for parameter in trained} == {torch.float32}


def test_vectors_and_attention_of_slim_keep_full_precision(mixed, monkeypatch):
    """A Lorentz transformation mixes numbers that almost cancel."""
    seen = []
    original = lorentz_layers.rms_norm
    monkeypatch.setattr(lorentz_layers, "rms_norm", lambda x: seen.append(x) or original(x))
    network = small_network("slim_xs").float().to("meta")
    jets = jets_for("slim_xs", LENGTHS, dtype=torch.float32).to("meta")
    with mixed:
        logits_of(network, jets)
    assert {x.vectors.dtype for x in seen} == {x.scalars.dtype for x in seen} == {torch.float32}
    attention = [dtypes for name, dtypes in mixed.products if name == "scaled_dot_product_attention"]
    assert attention
    assert all(dtypes == {torch.float32} for dtypes in attention)
    linear = [dtypes for name, dtypes in mixed.products if name == "linear"]
    assert linear.count({torch.float32}) >= 5  # of vectors
    assert linear.count({torch.bfloat16}) >= 5  # of scalars


def test_distances_of_particlenet_keep_full_precision(mixed):
    network = small_network("particlenet").float().to("meta")
    with mixed:
        logits_of(network, jets_for("particlenet", LENGTHS, dtype=torch.float32).to("meta"))
    distances = [dtypes for name, dtypes in mixed.products if name == "baddbmm"]
    assert distances
    assert all(dtypes == {torch.float32} for dtypes in distances)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_takes_both_precisions(mixed, name):
    network, objective = (part.to("meta").train() for part in small_objective(name))
    with mixed:
        loss = objective(network, batch_of().to("meta")).loss
        loss.backward()
    assert loss.dtype == torch.float32
    assert all(len(dtypes) == 1 for _, dtypes in mixed.products)
    assert {torch.bfloat16} in [dtypes for name, dtypes in mixed.products if name == "linear"]
    trained = [*network.parameters(), *objective.parameters()]
    gradients = [parameter.grad for parameter in trained if parameter.requires_grad]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


@pytest.mark.parametrize("case", [CASE, "slim_xs"])
@pytest.mark.parametrize("name", ["masked particles", "masked flow"])
def test_observables_of_jets_keep_full_precision(mixed, name, case):
    """Some are differences of large numbers."""
    network, objective = (part.to("meta").train() for part in small_objective(name, case))
    with mixed:
        objective(network, batch_of(case).to("meta")).loss.backward()
    assert all(len(dtypes) == 1 for _, dtypes in mixed.products)
    products = [dtypes for name, dtypes in mixed.products if "matmul" in name]
    assert products.count({torch.float32}) >= len(POWERS)


def test_sums_over_jets_have_the_digits_of_float32():
    """In bfloat16 there is no 301, and 256 + 1 is 256."""
    sums = sum_over_jets(torch.ones(402, 1, dtype=torch.bfloat16), torch.tensor([0, 301, 402]))
    assert sums.flatten().tolist() == [301, 101]


def test_full_precision_switches_autocast_off_and_on_again():
    tensor = torch.ones(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision(tensor):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    with full_precision(tensor.to("meta")):  # of which autocast knows nothing
        pass
