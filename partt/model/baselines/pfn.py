"""The Particle Flow Network (arXiv:1810.05165), with the widths of arXiv:2202.03772.

Axes: B jets, T particles of all jets, P slots of a padded jet, F features, W width, C classes.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from partt.config import Record
from partt.model.grouping import jet_of_row
from partt.model.particle_transformer_config import Widths


class PFNConfig(Record):
    """Widths of the network on particles and of the network on the sum."""

    particle_widths: Widths = (128, 128, 128)
    jet_widths: Widths = (128, 128, 128)


class PFN(nn.Module):
    """F(Σ Φ(particle)): what a jet is does not depend on the order of its particles."""

    needs_momenta: ClassVar[bool] = False
    needs_points: ClassVar[bool] = False

    def __init__(self, config: PFNConfig, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.particle_network = mlp(num_features, config.particle_widths)
        self.jet_network = mlp(config.particle_widths[-1], config.jet_widths)
        self.head = nn.Linear(config.jet_widths[-1], num_classes)

    def forward(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from features (T, F) and offsets (B + 1)."""
        del momenta, points
        x = self.particle_network(particles)  # (T, W)
        jets = sum_over_jets(x, offsets)  # (B, W)
        logits: Tensor = self.head(self.jet_network(jets))
        return logits

    def forward_dense(
        self, particles: Tensor, momenta: Tensor | None, mask: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from padded features (B, P, F) and mask (B, P)."""
        del momenta, points
        x = self.particle_network(particles) * mask[..., None]  # (B, P, W)
        logits: Tensor = self.head(self.jet_network(x.sum(dim=1)))
        return logits


def mlp(num_inputs: int, widths: tuple[int, ...]) -> nn.Sequential:
    """Return Linear -> ReLU for each width."""
    layers: list[nn.Module] = []
    for inputs, outputs in zip((num_inputs, *widths[:-1]), widths, strict=True):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def sum_over_jets(x: Tensor, offsets: Tensor) -> Tensor:
    """Return the sum (B, W) over each jet's rows of x (T, W)."""
    sums = torch.zeros(len(offsets) - 1, x.shape[1], dtype=x.dtype, device=x.device)
    return sums.index_add(0, jet_of_row(offsets), x)
