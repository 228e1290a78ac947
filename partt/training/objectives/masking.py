"""Masks: which particles of jets are hidden, and the inputs without them.

The host draws masks, and so knows the sizes of all tensors: no GPU is waited for.

Axes: B jets, T particles of all jets: V that are left and M that are masked.
"""

from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn import functional

from partt.jet_inputs import JetInputs, Layout, main_collection, sender
from partt.model.grouping import jet_of_row


@dataclass(frozen=True, eq=False)
class MaskedJets:
    """Jets of whose main collection some particles are masked."""

    layout: Layout  # of all particles
    rows: Tensor  # (M,) the masked ones
    left: Tensor  # (V,) the others
    left_layout: Layout  # of the others
    jets: Tensor  # (M,) the jet of each masked particle
    ranks: Tensor  # (M,) position among the masked particles of its jet, by decreasing pT

    def visible(self, inputs: JetInputs) -> JetInputs:
        """Return the inputs of the particles that are left; other collections stay whole."""
        name = main_collection(inputs.shape)
        cut = inputs.collections[name].with_rows(itemgetter(self.left), self.left_layout)
        return JetInputs({**inputs.collections, name: cut}, inputs.jet_features)


def draw_rows(layout: Layout, fraction: float, generator: torch.Generator) -> Tensor:
    """Return rows (M,), in order, of floor(fraction x length) random particles of each jet, on the host."""
    jets = jet_of_row(layout.host_offsets)
    chance = torch.rand(len(jets), dtype=torch.float64, generator=generator)
    order = (jets + chance).argsort()  # jet after jet, each in random order
    place = torch.arange(len(jets)) - layout.host_offsets[jets]
    num_masked = (fraction * layout.host_lengths.double() + 1e-9).floor()  # 0.29 x 100 is 28.999...
    return order[place < num_masked[jets]].sort().values


def masked_jets(inputs: JetInputs, rows: Tensor) -> MaskedJets:
    """Return jets with masked rows (M,) of their main collection, in order, on the host.

    Without momenta, particles keep the order of the file, which usually is that of pT.
    """
    momenta, layout = inputs.main.momenta, inputs.main.layout
    send = sender(layout.device)
    is_left = torch.ones(layout.num_rows, dtype=torch.bool)
    is_left[rows] = False
    jets = jet_of_row(layout.host_offsets)[rows]
    num_masked = jets.bincount(minlength=layout.num_jets)
    num_left = layout.host_lengths - num_masked
    first = send(functional.pad(num_masked.cumsum(0), (1, 0)))  # (B + 1,)
    left, rows, jets = send(is_left.nonzero()[:, 0]), send(rows), send(jets)
    order = torch.arange(len(rows), device=layout.device)
    if momenta is not None:
        by_pt = momenta[rows, :2].norm(dim=1).argsort(descending=True, stable=True)
        order = by_pt[jets[by_pt].argsort(stable=True)]
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(rows), device=layout.device) - first[jets[order]]
    return MaskedJets(layout, rows, left, Layout.of_lengths(send(num_left), num_left), jets, ranks)
