"""P-CNN: a residual network of one-dimensional convolutions along the particles, in input (pT) order.

After the P-CNN of arXiv:1902.08570, without strides. Axes: B jets, T particles of all jets, P slots of a
padded jet, F features, W channels, C classes.
"""

from typing import ClassVar, cast

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from partt.config import Record
from partt.model.baselines.pfn import sum_over_jets
from partt.model.embeddings import batch_norm
from partt.model.grouping import jet_of_row
from partt.model.particle_transformer_config import Probability, Widths


class PCNNConfig(Record):
    """Channels of the first convolution and of the residual units, and the network on the mean."""

    first_width: PositiveInt = 32
    unit_widths: Widths = (64, 64, 64, 64, 128, 128)
    hidden_width: PositiveInt = 512
    dropout: Probability = 0.2


class PCNN(nn.Module):
    """Convolutions over neighbours in the list of particles, mean over the jet."""

    needs_momenta: ClassVar[bool] = False
    needs_points: ClassVar[bool] = False

    def __init__(self, config: PCNNConfig, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.input_norm = nn.BatchNorm1d(num_features)
        self.first = Convolution(num_features, config.first_width)
        inputs = (config.first_width, *config.unit_widths[:-1])
        self.units = nn.ModuleList(
            ResidualUnit(*pair) for pair in zip(inputs, config.unit_widths, strict=True)
        )
        self.head = nn.Sequential(
            nn.Linear(config.unit_widths[-1], config.hidden_width),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden_width, num_classes),
        )

    def forward(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from features (T, F) and offsets (B + 1)."""
        del momenta, points
        neighbours = _neighbours(offsets)
        x = self.first(batch_norm(particles, self.input_norm), neighbours)
        for unit in self.units:
            x = unit(x, neighbours)
        mean = sum_over_jets(x, offsets) / offsets.diff().clamp(min=1)[:, None]  # (B, W)
        logits: Tensor = self.head(mean)
        return logits

    def forward_dense(
        self, particles: Tensor, momenta: Tensor | None, mask: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from padded features (B, P, F) and mask (B, P)."""
        del momenta, points
        real = mask[..., None].to(particles.dtype)  # (B, P, 1)
        x = self.first.forward_dense(batch_norm(particles, self.input_norm) * real) * real
        for unit in self.units:
            x = cast("ResidualUnit", unit).forward_dense(x, real)
        mean = x.sum(dim=1) / real.sum(dim=1).clamp(min=1)  # (B, W)
        logits: Tensor = self.head(mean)
        return logits


class Convolution(nn.Module):
    """A convolution of width 3 along the particles of a jet, BatchNorm, ReLU; on packed rows."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * num_inputs, num_outputs)
        self.norm = nn.BatchNorm1d(num_outputs)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Return (T, outputs) from x (T, inputs); neighbours (T, 3) are rows, T meaning none."""
        padded = torch.cat((x, x.new_zeros(1, x.shape[1])))
        windows = padded.index_select(0, neighbours.flatten()).view(len(x), 3 * x.shape[1])
        return batch_norm(self.linear(windows), self.norm).relu()

    def forward_dense(self, x: Tensor) -> Tensor:
        """Return (B, P, outputs) from x (B, P, inputs), zero where there is no particle."""
        none = torch.zeros_like(x[:, :1])
        before, after = torch.cat((none, x[:, :-1]), dim=1), torch.cat((x[:, 1:], none), dim=1)
        return batch_norm(self.linear(torch.cat((before, x, after), dim=2)), self.norm).relu()


class ResidualUnit(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.first = Convolution(num_inputs, num_outputs)
        self.second = Convolution(num_outputs, num_outputs)
        same = num_inputs == num_outputs
        self.shortcut = nn.Identity() if same else nn.Linear(num_inputs, num_outputs, bias=False)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Return (T, outputs) from x (T, inputs)."""
        y: Tensor = self.second(self.first(x, neighbours), neighbours) + self.shortcut(x)
        return y

    def forward_dense(self, x: Tensor, real: Tensor) -> Tensor:
        """Return (B, P, outputs) from x (B, P, inputs); real (B, P, 1) is 1 for particles and 0 elsewhere."""
        y: Tensor = self.second.forward_dense(self.first.forward_dense(x) * real) * real + self.shortcut(x)
        return y


def _neighbours(offsets: Tensor) -> Tensor:
    """Return the rows before, at and after each row (T, 3); T stands for "none in this jet"."""
    jets = jet_of_row(offsets)
    rows = torch.arange(len(jets), device=offsets.device)
    before = torch.where(rows > offsets[jets], rows - 1, len(rows))
    after = torch.where(rows + 1 < offsets[jets + 1], rows + 1, len(rows))
    return torch.stack((before, rows, after), dim=1)
