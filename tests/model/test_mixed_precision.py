"""precision: bfloat16 without a GPU: torch's rules of mixed precision applied on the meta device.

torch.autocast does not know that device, and CPUs may lack bfloat16 products; so the rules for GPUs are
applied here to the functions that networks call. Operations refuse operands of two types there, too.
"""

from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from partt.data.config.data_config import load_data_config
from partt.data.jet_batch import JetBatch
from partt.model import lorentz_layers
from partt.model.baselines import particlenet
from partt.model.precision import full_precision
from partt.training.objectives import jet_observables
from partt.training.objectives.jet_observables import POWERS, num_observables
from partt.training.objectives.masked_flow import MaskedFlow
from partt.training.objectives.masked_particles import MaskedParticles
from partt.training.objectives.particle_targets import particle_targets
from partt.training.recipe import MaskedParticlesChoice
from small_networks import ALL, jets_for, logits_of, small_network

LENGTHS = (0, 5, 5, 12)
# of torch's documentation of autocast: computed in bfloat16, in float32, in the widest type of the operands
LOWER = {
    *(
        "__matmul__",
        "__rmatmul__",
        "addmm",
        "addbmm",
        "baddbmm",
        "bmm",
        "gru",
        "linear",
        "lstm",
        "matmul",
        "mm",
    ),
    "scaled_dot_product_attention",
}
FLOAT32 = {
    *(
        "cross_entropy",
        "cumsum",
        "exp",
        "layer_norm",
        "log",
        "log_softmax",
        "norm",
        "pow",
        "prod",
        "rms_norm",
    ),
    *("rsqrt", "softmax", "sum"),
}
WIDEST = {"addcmul", "addcdiv", "cat", "index_put", "scatter_add", "stack"}


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


@pytest.mark.parametrize("case", ["part_s", "slim_xs"])
@pytest.mark.parametrize("kind", [MaskedParticles, MaskedFlow])
def test_masked_particles_take_both_precisions(mixed, kind, case):
    """Observables, some of which are differences of large numbers, keep float32."""
    network, inputs = small_network(case).float(), jets_for(case, LENGTHS, dtype=torch.float32)
    zeros = torch.zeros(len(LENGTHS), dtype=torch.int64)
    batch = JetBatch(inputs, None, torch.ones(len(LENGTHS)), zeros, zeros, zeros.bool(), zeros, zeros)
    objective = kind(
        particle_targets(load_data_config("jetclass_full")),
        MaskedParticlesChoice(),
        num_observables=num_observables(inputs.shape.collections["pf"]),
    )
    objective.prepare(network)
    network, objective = network.to("meta").train(), objective.to("meta").train()
    with mixed:
        objective(network, batch.to("meta")).loss.backward()
    assert all(len(dtypes) == 1 for _, dtypes in mixed.products)
    assert {torch.bfloat16} in [dtypes for name, dtypes in mixed.products if name == "linear"]
    assert [dtypes for name, dtypes in mixed.products if "matmul" in name].count({torch.float32}) >= len(
        POWERS
    )
    trained = [*network.backbone.parameters(), *objective.parameters()]
    gradients = [parameter.grad for parameter in trained if parameter.requires_grad]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}


def test_full_precision_switches_autocast_off_and_on_again():
    tensor = torch.ones(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with full_precision(tensor):
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
    with full_precision(tensor.to("meta")):  # of which autocast knows nothing
        pass
