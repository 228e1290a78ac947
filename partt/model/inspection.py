"""Attention maps and embeddings of a Particle Transformer, jet by jet.

Axes: B jets, P particles of a jet, those of all collections in order, D width, H heads, L particle blocks,
K class blocks, C classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partt.errors import ConfigError
from partt.jet_inputs import JetInputs
from partt.model.config_types import CLASSES
from partt.model.interleaving import interleave
from partt.model.network import Network
from partt.model.particle_transformer import AttentionMaps, ParticleTransformer


@dataclass(frozen=True, eq=False)
class JetInspection:
    """Logits, embedding and attention of one jet."""

    logits: Tensor  # (C,)
    embedding: Tensor  # (D,) what the head sees
    attention: Tensor  # (L, H, P, P) from particle i (rows) to particle j
    class_attention: Tensor  # (K, H, 1 + P) from the class token to itself and the particles


@torch.no_grad()
def inspect_jets(network: Network, inputs: JetInputs) -> list[JetInspection]:
    """Return logits, embedding and attention maps of every jet; the network must be in evaluation mode."""
    backbone = network.backbone
    if not isinstance(backbone, ParticleTransformer):
        raise ConfigError(f"{network.name} has no attention maps; only Particle Transformers have them")
    if network.training:
        raise ValueError("inspect_jets needs network.eval(): dropout would blur the attention maps")
    lengths = inputs.lengths.tolist()
    inspections: dict[int, JetInspection] = {}
    for group, x, bias in backbone.embed_groups(interleave(inputs.collections)):
        maps = AttentionMaps()
        embeddings = backbone.norm(backbone.encode(x, bias, group.mask, maps)[0])
        embeddings = torch.cat(
            (embeddings, *(values[group.jets] for values in inputs.jet_features.values())), 1
        )
        logits = network.outputs(embeddings)[CLASSES]
        attention = torch.stack(maps.particles)  # (L, H, G, P, P)
        class_attention = torch.stack(maps.token)  # (K, G, H, 1 + P)
        for index, jet in enumerate(group.jets.tolist()):
            size = lengths[jet]
            inspections[jet] = JetInspection(
                logits[index],
                embeddings[index],
                attention[:, :, index, :size, :size],
                class_attention[:, index, :, : 1 + size],
            )
    return [inspections[jet] for jet in range(len(lengths))]
