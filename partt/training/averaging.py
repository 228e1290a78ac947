"""Exponential moving average of the weights of network and objective."""

import copy
from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def new_average(module: Module) -> Module:
    """Return a copy of a module that starts an average."""
    return copy.deepcopy(module).requires_grad_(False)


def decay_at(decay: float, step: int) -> float:
    """Return the decay of a step, counted from 0: less at first, so that the start is soon forgotten."""
    return min(decay, (1 + step) / (10 + step))


@torch.no_grad()
def update_average(average: nn.Module, module: nn.Module, decay: float) -> None:
    """Move the average towards a module: average = decay x average + (1 - decay) x module.

    Running statistics of BatchNorms are averaged like weights, which they then fit; counts are copied.
    """
    for mean, tensor in zip(average.state_dict().values(), module.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(tensor, 1 - decay)
        else:
            mean.copy_(tensor)
