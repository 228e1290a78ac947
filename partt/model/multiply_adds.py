"""How much a network computes: multiply-adds of its matrix products and convolutions."""

import copy

import torch
from torch.utils.flop_counter import FlopCounterMode

from partt.jet_inputs import JetInputs
from partt.model.network import Network


def count_multiply_adds(network: Network, inputs: JetInputs) -> int:
    """Return the multiply-adds of a forward pass over jets, counted while it runs.

    Counted is what is computed, the little padding inside groups of similar jets included. Elementwise
    operations (activations, norms, pair features) are left out, as is usual.
    """
    twin = copy.deepcopy(network).cpu().eval()
    # With gradients and on the CPU, every product is one that torch's counter knows.
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        twin(inputs)
    return int(counter.get_total_flops()) // 2
