"""How much a network computes: multiply-adds of its matrix products and convolutions."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from partt.jet_inputs import JetInputs
from partt.model.network import Network


def count_multiply_adds(network: Network, inputs: JetInputs) -> int:
    """Return the multiply-adds of a forward pass over jets, counted while it runs.

    Counted is what is computed, the little padding inside groups of similar jets included. Elementwise
    operations (activations, norms, pair features) are left out, as is usual.
    """
    twin = copy.deepcopy(network).cpu().eval()
    # With gradients and on the CPU, every product is one that torch's formulas know.
    with torch.enable_grad(), _Counter() as counter:
        twin(inputs)
    return int(counter.num_operations) // 2


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what torch.utils.flop_counter knows of each operation, faster than its own counter."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_operations = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:  # noqa: SLF001
            self.num_operations += sdpa_flop_count(*(t.shape for t in args[:3]))  # type: ignore[no-untyped-call]
        elif func.overloadpacket in flop_registry:
            self.num_operations += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result
