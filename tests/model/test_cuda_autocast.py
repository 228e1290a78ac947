"""torch's own mixed precision for GPUs, without a GPU: a build of torch for CUDA runs forward passes of fake tensors.

They have shapes and types, but no values. Backward passes, and recurrent cells of cuDNN, need a driver.
"""

from contextlib import contextmanager

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from partt import jet_inputs
from partt.data import jet_batch
from partt.training.objectives import masked_flow, masking
from small_networks import ALL, jets_for, logits_of, small_network
from small_objectives import LENGTHS, OBJECTIVES, batch_of, small_objective

pytestmark = pytest.mark.skipif(not torch.backends.cuda.is_built(), reason="torch is not built for CUDA")


class FakeGPU(FakeTensorMode):
    """Makes fake tensors on a GPU only: the host computes."""

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs))
        is_on_gpu = any(
            isinstance(leaf, FakeTensor) or (isinstance(leaf, torch.device) and leaf.type == "cuda")
            for leaf in leaves
        )
        return (
            super().__torch_dispatch__(func, types, args, kwargs)
            if is_on_gpu
            else func(*args, **(kwargs or {}))
        )


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """Let the device cuda be a fake one."""
    for module in (
        jet_batch,
        jet_inputs,
        masking,
        masked_flow,
    ):  # which would pin memory, for which CUDA must run
        monkeypatch.setattr(module, "sender", lambda device: lambda tensor: tensor.to(device))
    with FakeGPU():
        yield


@contextmanager
def autocast():
    """Switch mixed precision on; torch.autocast would not, since there is no GPU."""
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("case", [case for case in ALL if not case.startswith(("gru", "lstm"))])
def test_networks(case, training):
    network = small_network(case).float().to("cuda").train(training)
    with torch.set_grad_enabled(training), autocast():
        logits = logits_of(network, jets_for(case, LENGTHS, dtype=torch.float32).to("cuda"))
    assert (logits.device.type, logits.dtype) == ("cuda", torch.bfloat16)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name):
    network, objective = (part.to("cuda").train() for part in small_objective(name))
    with autocast():
        loss = objective(network, batch_of().to("cuda")).loss
    assert (loss.device.type, loss.dtype) == ("cuda", torch.float32)
