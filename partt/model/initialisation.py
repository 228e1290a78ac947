"""Initial weights of the Particle Transformer, as in weaver-core."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from partt.model.particle_transformer import ParticleTransformer


def initialise(backbone: "ParticleTransformer", heads: nn.ModuleDict) -> None:
    """Draw new weights from torch's random numbers.

    Xavier-uniform with q, k, v as separate matrices, zero biases; then out_proj and fc2 of block l are
    divided by sqrt(2 l). The pair embedding keeps torch's default.
    """
    nn.init.trunc_normal_(backbone.class_token, std=0.02)
    named = backbone.named_modules()
    _draw((name, module) for name, module in named if not name.startswith("pair_embedding."))
    _draw(heads.named_modules())
    for depth, block in enumerate(backbone.blocks, start=1):
        for name, parameter in block.named_parameters():
            if name in {"attention.out_proj.weight", "feed_forward.fc2.weight"}:
                parameter.data /= math.sqrt(2 * depth)


def _draw(modules: Iterable[tuple[str, nn.Module]]) -> None:
    for name, module in modules:
        if not isinstance(module, nn.Linear):
            continue
        if name.endswith(".in_proj"):
            bound = math.sqrt(6 / (2 * module.in_features))
            nn.init.uniform_(module.weight, -bound, bound)
        else:
            nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
