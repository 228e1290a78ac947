"""A recurrent tagger: a GRU or LSTM that reads the particles of a jet in order of falling pT.

Axes: B jets, T particles of all jets, P slots of the padded batch, F features, W width, C classes.
"""

from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from partt.config import Record
from partt.errors import DataError
from partt.model.config import Probability
from partt.model.embeddings import batch_norm
from partt.model.packing import jet_of_row, pad_jets, take_rows
from partt.physics.four_vectors import transverse_momentum


class RecurrentConfig(Record):
    """Kind and size of the recurrent network."""

    cell: Literal["gru", "lstm"] = "gru"
    width: PositiveInt = 128
    num_layers: PositiveInt = 2
    dropout: Probability = 0.1


class Recurrent(nn.Module):
    """The state after the last particle tells the class."""

    needs_momenta: ClassVar[bool] = True
    needs_points: ClassVar[bool] = False

    def __init__(self, config: RecurrentConfig, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.config = config
        self.input_norm = nn.BatchNorm1d(num_features)
        cell = nn.GRU if config.cell == "gru" else nn.LSTM
        dropout = config.dropout if config.num_layers > 1 else 0.0  # torch drops between layers only
        self.cell = cell(num_features, config.width, config.num_layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(config.width, num_classes)

    def forward(
        self, particles: Tensor, momenta: Tensor | None, offsets: Tensor, points: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, C) from features (T, F), momenta (T, 4) and offsets (B + 1)."""
        del points
        if momenta is None:
            raise DataError("a recurrent network sorts by pT: add the input pf_vectors to the data config")
        x = batch_norm(particles, self.input_norm)[_by_falling_pt(momenta, offsets)]
        group = pad_jets(offsets)
        lengths = offsets.diff()
        padded = take_rows(x, group.rows) * (lengths > 0)[:, None, None]  # an empty jet reads one zero
        sequences = pack_padded_sequence(
            padded, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        _, state = self.cell(sequences)
        hidden = state[0] if self.config.cell == "lstm" else state  # (layers, B, W)
        logits: Tensor = self.head(hidden[-1])
        return logits


def _by_falling_pt(momenta: Tensor, offsets: Tensor) -> Tensor:
    """Return the rows jet after jet, in each jet from the largest pT to the smallest (T,)."""
    by_pt = torch.sort(transverse_momentum(momenta), descending=True, stable=True).indices
    jets = jet_of_row(offsets)[by_pt]
    return by_pt[torch.sort(jets, stable=True).indices]
