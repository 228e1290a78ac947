"""What a Particle Transformer looks at: its attention maps and embeddings, jet by jet.

Axes: B jets, P particles of a jet, D width, H heads, L particle blocks, K class blocks, C classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from partt.model.grouping import group_jets, take_rows
from partt.model.particle_transformer import AttentionMaps, ParticleTransformer


@dataclass(frozen=True, eq=False)
class JetInspection:
    """The inner life of one jet."""

    logits: Tensor  # (C,)
    embedding: Tensor  # (D,) what the head sees
    attention: Tensor  # (L, H, P, P) from particle i (rows) to particle j
    class_attention: Tensor  # (K, H, 1 + P) from the class token to itself and the particles


@torch.no_grad()
def inspect_jets(
    network: ParticleTransformer, particles: Tensor, momenta: Tensor, offsets: Tensor
) -> list[JetInspection]:
    """Return logits, embedding and attention maps of every jet; the network must be in evaluation mode.

    particles (T, F), momenta (T, 4) in GeV, offsets (B + 1), as for the network itself.
    """
    if network.training:
        raise ValueError("inspect_jets wants network.eval(): dropout would blur the attention maps")
    lengths = offsets.diff().tolist()
    inspections: dict[int, JetInspection] = {}
    for group in group_jets(offsets):
        maps = AttentionMaps()
        x, bias = network.embed(take_rows(particles, group.rows), take_rows(momenta, group.rows))
        embeddings = network.norm(network.encode(x, bias, group.mask, maps))
        logits = network.head(embeddings)
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
