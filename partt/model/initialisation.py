"""Initial weights of the Particle Transformer, as in weaver-core."""

import math
from collections.abc import Iterable

from torch import nn


def draw_linear_weights(modules: Iterable[tuple[str, nn.Module]]) -> None:
    """Draw weights of Linear layers: Xavier-uniform with q, k, v as separate matrices; biases are zero."""
    for name, module in modules:
        if not isinstance(module, nn.Linear):
            continue
        if name.endswith(".in_proj"):
            bound = math.sqrt(6 / (2 * module.in_features))
            nn.init.uniform_(module.weight, -bound, bound)
        else:
            nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def scale_by_depth(blocks: Iterable[nn.Module]) -> None:
    """Divide out_proj and fc2 of block l, counted from 1, by sqrt(2 l)."""
    for depth, block in enumerate(blocks, start=1):
        for name, parameter in block.named_parameters():
            if name in {"attention.out_proj.weight", "feed_forward.fc2.weight"}:
                parameter.data /= math.sqrt(2 * depth)
