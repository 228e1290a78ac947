"""ParticleNet (arXiv:1902.08570): weaver-core's module behind partt's interface.

Axes: B jets, T particles of all jets, P slots of the padded batch, F features, C classes.
"""

from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from weaver.nn.model.ParticleNet import ParticleNet as WeaverParticleNet

from partt.config import Record
from partt.errors import DataError
from partt.model.config import Probability, Widths
from partt.model.packing import Group, group_jets, pad_jets, take_rows


class ParticleNetConfig(Record):
    """Shape of a ParticleNet; the defaults are the network published with JetClass."""

    num_neighbours: PositiveInt = 16
    convolutions: Annotated[tuple[Widths, ...], Field(strict=False)] = (
        (64, 64, 64),
        (128, 128, 128),
        (256, 256, 256),
    )
    hidden_width: PositiveInt = 256
    dropout: Probability = 0.1


class ParticleNet(nn.Module):
    """Edge convolutions among the nearest neighbours of every particle."""

    needs_momenta: ClassVar[bool] = False
    needs_points: ClassVar[bool] = True

    def __init__(self, config: ParticleNetConfig, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.weaver = WeaverParticleNet(
            num_features,
            num_classes,
            conv_params=[(config.num_neighbours, list(widths)) for widths in config.convolutions],
            fc_params=[(config.hidden_width, config.dropout)],
            use_fusion=False,
            trim=False,
        )

    def forward(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from features (T, F), offsets (B + 1) and coordinates points (T, 2)."""
        del momenta  # for networks with pair features
        if points is None:
            raise DataError("ParticleNet needs coordinates: add the input pf_points to the data config")
        min_length = self.config.num_neighbours + 1  # a particle is not its own neighbour
        # BatchNorm couples the jets in training; otherwise jets of similar length save padding.
        groups = [pad_jets(offsets, min_length)] if self.training else group_jets(offsets, None, min_length)
        logits = [self._logits(group, particles, points) for group in groups]
        return torch.cat(logits)[torch.cat([group.jets for group in groups]).argsort()]

    def _logits(self, group: Group, particles: Tensor, points: Tensor) -> Tensor:
        mask = torch.ones_like(group.rows, dtype=torch.bool) if group.mask is None else group.mask
        padded = (take_rows(values, group.rows).transpose(1, 2) for values in (points, particles))
        logits: Tensor = self.weaver(*padded, mask[:, None])
        return logits
