"""A recurrent network: a GRU or LSTM that reads the particles of a jet in order of decreasing pT.

Axes: B jets, T particles of all jets, P slots of the padded batch, F features, W width.
"""

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from partt.config import Record
from partt.jet_inputs import InputShape, JetInputs, Layout, PaddedInputs
from partt.model.config_types import NumLayers, Probability, Width
from partt.model.embeddings import batch_norm
from partt.model.exporting import is_exporting
from partt.model.grouping import jet_of_row, take_rows
from partt.model.heads import HeadConfig
from partt.model.network import Backbone, Embeddings
from partt.physics.four_vectors import transverse_momentum


class RecurrentConfig(Record):
    """Kind and size of the recurrent network."""

    cell: Literal["gru", "lstm"] = "gru"
    width: Width = 128
    num_layers: NumLayers = 2
    dropout: Probability = 0.1
    head: HeadConfig = HeadConfig()


class Recurrent(Backbone):
    """The embedding is the state after the last particle."""

    config: RecurrentConfig
    needs_momenta = "a recurrent network sorts by pT"

    def __init__(self, config: RecurrentConfig, shape: InputShape) -> None:
        super().__init__(config, config.width, config.head)
        collection = self.only_collection(shape)
        self.input_norm = nn.BatchNorm1d(collection.num_features)
        cell = nn.GRU if config.cell == "gru" else nn.LSTM
        dropout = config.dropout if config.num_layers > 1 else 0.0  # torch drops between layers only
        self.cell = cell(
            collection.num_features, config.width, config.num_layers, batch_first=True, dropout=dropout
        )

    def forward(self, inputs: JetInputs, *, with_tokens: bool = False) -> Embeddings:
        """Return the last layer's state after the last particle (B, W)."""
        del with_tokens  # there are no tokens
        jets = inputs.main
        momenta = cast("Tensor", jets.momenta)
        x = batch_norm(jets.features, self.input_norm)[_by_decreasing_pt(momenta, jets.offsets)]
        _, state = self.cell(_sequences(x, jets.layout))
        hidden = state[0] if self.config.cell == "lstm" else state  # (layers, B, W)
        return Embeddings(hidden[-1])

    def embed_padded(self, inputs: PaddedInputs) -> Tensor:
        """Return the embeddings (B, W) of padded jets."""
        jets = inputs.main
        pt = transverse_momentum(cast("Tensor", jets.momenta).double()).masked_fill(~jets.mask, -1)
        # (B, P), padding last; ONNX has no stable argsort, but its topk is stable
        order = pt.topk(pt.shape[1]).indices if is_exporting() else pt.argsort(descending=True, stable=True)
        x = batch_norm(jets.features, self.input_norm) * jets.mask[..., None]
        x = x.gather(1, order[..., None].expand(x.shape))
        outputs = onnx_cell(self.cell, x) if is_exporting() else self.cell(x)[0]
        # outputs (B, P, W) after the last particle of a jet are ignored
        last = (jets.mask.sum(dim=1) - 1).clamp(min=0)  # (B,); an empty jet reads one zero
        state: Tensor = outputs.gather(1, last[:, None, None].expand(-1, 1, outputs.shape[2]))[:, 0]
        return state


def onnx_cell(cell: nn.GRU | nn.LSTM, x: Tensor) -> Tensor:
    """Return the outputs (B, P, W) for x (B, P, F) as ONNX operators; torch would unroll the steps."""
    # order of the gates, torch -> ONNX: GRU r z n -> z r n; LSTM i f g o -> i o f g
    gates, name = ((1, 0, 2), "GRU") if isinstance(cell, nn.GRU) else ((0, 3, 1, 2), "LSTM")
    attributes: dict[str, Any] = {"hidden_size": cell.hidden_size}
    if name == "GRU":
        attributes["linear_before_reset"] = 1

    def reordered(weight: Tensor) -> Tensor:
        parts = weight.chunk(len(gates))
        return torch.cat([parts[gate] for gate in gates])

    x = x.transpose(0, 1)  # (P, B, F)
    for layer in range(cell.num_layers):
        w, r, bias_w, bias_r = (
            reordered(getattr(cell, f"{kind}_l{layer}"))
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        outputs = torch.onnx.ops.symbolic(
            name,
            (x, w[None], r[None], torch.cat((bias_w, bias_r))[None]),
            attributes,
            dtype=x.dtype,
            shape=(x.shape[0], 1, x.shape[1], cell.hidden_size),
        )
        x = outputs[:, 0]  # (P, B, W)
    return x.transpose(0, 1)


def _sequences(x: Tensor, layout: Layout) -> PackedSequence:
    """Return rows (T, F) as sequences of jets, the longest first; an empty jet is a sequence of one zero.

    As torch's pack_padded_sequence does it, but with the lengths that the host knows.
    """
    read = Layout.of_lengths(layout.lengths.clamp(min=1), layout.host_lengths.clamp(min=1))
    order = read.lengths.sort(descending=True, stable=True).indices  # (B,) jets
    place = order.argsort()  # (B,) of each jet
    jets = jet_of_row(read.offsets, read.num_rows)
    slots = torch.arange(len(jets), device=x.device) - read.offsets[jets]
    by_slot = (
        slots * layout.num_jets + place[jets]
    ).argsort()  # first particles of all jets, then second, ...
    jets, slots = jets[by_slot], slots[by_slot]
    rows = (layout.offsets[jets] + slots).clamp(max=max(layout.num_rows - 1, 0))
    data = take_rows(x, rows) * (layout.lengths > 0)[jets, None]
    sizes = (read.host_lengths > torch.arange(read.longest)[:, None]).sum(
        dim=1
    )  # jets with so many particles
    return PackedSequence(data, sizes, order, place)


def _by_decreasing_pt(momenta: Tensor, offsets: Tensor) -> Tensor:
    """Return the rows jet by jet, in each from the largest pT to the smallest (T,)."""
    by_pt = torch.sort(transverse_momentum(momenta.double()), descending=True, stable=True).indices
    jets = jet_of_row(offsets, len(momenta))[by_pt]
    return by_pt[torch.sort(jets, stable=True).indices]
