"""P-CNN: a residual network of 1D convolutions along the particles, in the order of the input (pT).

After the P-CNN of arXiv:1902.08570, without strides. Axes: B jets, T particles of all jets, P slots of a
padded jet, F features, W channels, D width of the embedding.
"""

from typing import Any, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from partt.config import Record
from partt.jet_inputs import InputShape, JetInputs, Layout, PaddedInputs
from partt.model.config_types import Width, Widths
from partt.model.embeddings import batch_norm
from partt.model.grouping import jet_of_row, sum_over_jets
from partt.model.heads import HeadConfig, with_head
from partt.model.network import Backbone, Embeddings


class PCNNConfig(Record):
    """Channels of the first convolution and of the residual units, and hidden layers of the heads."""

    first_width: Width = 32
    unit_widths: Widths = (64, 64, 64, 64, 128, 128)
    head: HeadConfig = HeadConfig(hidden_widths=(512,), dropout=0.2)

    @model_validator(mode="before")
    @classmethod
    def _read_older_keys(cls, settings: Any) -> Any:
        return with_head(settings, cls.model_fields["head"].default)


class PCNN(Backbone):
    """Convolutions along the list of particles, then the mean over the jet."""

    config: PCNNConfig

    def __init__(self, config: PCNNConfig, shape: InputShape) -> None:
        super().__init__(config, config.unit_widths[-1], config.head)
        self.token_width = self.width
        collection = self.only_collection(shape)
        self.input_norm = nn.BatchNorm1d(collection.num_features)
        self.first = Convolution(collection.num_features, config.first_width)
        inputs = (config.first_width, *config.unit_widths[:-1])
        self.units = nn.ModuleList(
            ResidualUnit(*pair) for pair in zip(inputs, config.unit_widths, strict=True)
        )

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the particles after the last convolution (T, D), and their mean over each jet (B, D)."""
        jets = inputs.main
        neighbours = _neighbours(jets.layout)
        x = self.first(batch_norm(jets.features, self.input_norm), neighbours)
        for unit in self.units:
            x = unit(x, neighbours)
        mean = sum_over_jets(x, jets.offsets) / jets.lengths.clamp(min=1)[:, None]  # (B, W)
        return Embeddings(mean, x if with_tokens else None)

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, D) of padded jets."""
        jets = inputs.main
        real = jets.mask[..., None].to(jets.features.dtype)  # (B, P, 1)
        x = self.first.forward_padded(batch_norm(jets.features, self.input_norm) * real) * real
        for unit in self.units:
            x = cast("ResidualUnit", unit).forward_padded(x, real)
        mean: Tensor = x.sum(dim=1) / real.sum(dim=1).clamp(min=1)  # (B, W)
        return mean


class Convolution(nn.Module):
    """A convolution of width 3 along the particles of a jet, BatchNorm, ReLU; on packed rows."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * num_inputs, num_outputs)
        self.norm = nn.BatchNorm1d(num_outputs)

    def forward(self, x: Tensor, neighbours: Tensor) -> Tensor:
        """Return (T, outputs) from x (T, inputs); neighbours (T, 3) are rows; T: none."""
        padded = torch.cat((x, x.new_zeros(1, x.shape[1])))
        windows = padded.index_select(0, neighbours.flatten()).view(len(x), 3 * x.shape[1])
        return batch_norm(self.linear(windows), self.norm).relu()

    def forward_padded(self, x: Tensor) -> Tensor:
        """Return (B, P, outputs) from x (B, P, inputs), zero where there is no particle."""
        none = torch.zeros_like(x[:, :1])
        before, after = torch.cat((none, x[:, :-1]), dim=1), torch.cat((x[:, 1:], none), dim=1)
        return batch_norm(self.linear(torch.cat((before, x, after), dim=2)), self.norm).relu()


class ResidualUnit(nn.Module):
    """Two convolutions with a residual connection."""

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

    def forward_padded(self, x: Tensor, real: Tensor) -> Tensor:
        """Return (B, P, outputs) from x (B, P, inputs); real (B, P, 1) is 1 for particles and 0 elsewhere."""
        y: Tensor = self.second.forward_padded(self.first.forward_padded(x) * real) * real + self.shortcut(x)
        return y


def _neighbours(layout: Layout) -> Tensor:
    """Return the rows before, at and after each row (T, 3); T: none in this jet."""
    offsets = layout.offsets
    jets = jet_of_row(offsets, layout.num_rows)
    rows = torch.arange(len(jets), device=offsets.device)
    before = torch.where(rows > offsets[jets], rows - 1, len(rows))
    after = torch.where(rows + 1 < offsets[jets + 1], rows + 1, len(rows))
    return torch.stack((before, rows, after), dim=1)
