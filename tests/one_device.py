"""Networks on a device that is not the CPU and has no data: torch's `meta` device in the place of a GPU.

There `.item()`, `.tolist()`, conditions on values and shapes that depend on values raise. The mode here adds
what it lets pass: tensors of two devices in one operation, and tensors made of numbers of the host.
"""

from typing import Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# a recurrent network's numbers of jets are on the CPU on every device
HOST_ARGUMENTS = {torch.ops.aten.gru.data: (1,), torch.ops.aten.lstm.data: (1,)}
# functions of numbers: on a GPU a copy from the host, for which it is stopped; no operation is dispatched
OF_NUMBERS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}
# x[rows] = number: on a GPU, too, a copy from the host
PUTS = {torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default}


class NoNumbersOfTheHost(TorchFunctionMode):
    """Raises an error if numbers of the host become a tensor on another device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if (func in OF_NUMBERS or _takes_listed(func, args)) and result.device.type != "cpu":
            raise AssertionError(f"{func.__name__}: numbers of the host become a tensor on {result.device}")
        return result


def _takes_listed(func, args) -> bool:
    """Return whether a function is x[[0, 2]] or x[:, [0, 2]]."""
    if func is not Tensor.__getitem__:
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(part, list) for part in index)


class OneDevice(TorchDispatchMode):
    """Raises an error if an operation has tensors on two devices, or brings numbers of the host to another."""

    def __init__(self):
        super().__init__()
        self.num_operations = 0  # that were not on the CPU
        self._functions = NoNumbersOfTheHost()

    def __enter__(self) -> Self:
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        on_host = {id(args[place]) for place in HOST_ARGUMENTS.get(func, ())}
        tensors = [
            item
            for item in tree_leaves((args, kwargs, result))
            if isinstance(item, Tensor) and id(item) not in on_host
        ]
        devices = {tensor.device.type for tensor in tensors}
        if len(devices) > 1:
            raise AssertionError(f"{func}: tensors on {' and '.join(sorted(devices))}")
        if func in PUTS and args[2].ndim == 0 and devices != {"cpu"}:
            raise AssertionError(f"{func}: numbers of the host become a tensor on {devices}")
        self.num_operations += devices == {"meta"}
        return result
