"""Masks: which particles of jets are hidden, and the inputs without them.

Axes: B jets, T particles of all jets: V that are left and M that are masked.
"""

from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn import functional

from partt.jet_inputs import JetInputs, main_collection
from partt.model.grouping import jet_of_row


@dataclass(frozen=True, eq=False)
class MaskedJets:
    """Jets of whose main collection some particles are masked."""

    mask: Tensor  # (T,) True: masked
    offsets: Tensor  # (B + 1,) of all particles
    rows: Tensor  # (M,) the masked ones
    left: Tensor  # (V,) the others
    jets: Tensor  # (M,) the jet of each masked particle
    ranks: Tensor  # (M,) position among the masked particles of its jet, by decreasing pT

    def visible(self, inputs: JetInputs) -> JetInputs:
        """Return the inputs of the particles that are left; other collections stay whole."""
        name = main_collection(inputs.shape)
        masked = functional.pad(self.mask.long().cumsum(0), (1, 0))  # particles masked before each row
        offsets = self.offsets - masked[self.offsets]
        cut = inputs.collections[name].with_rows(itemgetter(self.left), offsets)
        return JetInputs({**inputs.collections, name: cut}, inputs.jet_features)


def draw_mask(offsets: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Return a mask (T,) of floor(fraction x length) random particles of each jet."""
    lengths, jets = offsets.diff(), jet_of_row(offsets)
    chance = torch.rand(len(jets), dtype=torch.float64, generator=generator).to(offsets.device)
    order = (jets + chance).argsort()  # jet after jet, each in random order
    place = torch.arange(len(jets), device=offsets.device) - offsets[jets]
    num_masked = (fraction * lengths.double() + 1e-9).floor().long()  # 0.29 x 100 is 28.999...
    mask = torch.zeros(len(jets), dtype=torch.bool, device=offsets.device)
    mask[order[place < num_masked[jets]]] = True
    return mask


def masked_jets(inputs: JetInputs, mask: Tensor) -> MaskedJets:
    """Return jets with a mask (T,) of their main collection, and the ranks of the masked particles.

    Without momenta, particles keep the order of the file, which usually is that of pT.
    """
    particles = inputs.main
    rows = mask.nonzero()[:, 0]
    jets = jet_of_row(particles.offsets)[rows]
    order = torch.arange(len(rows), device=rows.device)
    if particles.momenta is not None:
        by_pt = particles.momenta[rows, :2].norm(dim=1).argsort(descending=True, stable=True)
        order = by_pt[jets[by_pt].argsort(stable=True)]
    first = functional.pad(jets.bincount(minlength=len(inputs)).cumsum(0), (1, 0))  # (B + 1,)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first[jets[order]]
    return MaskedJets(mask, particles.offsets, rows, (~mask).nonzero()[:, 0], jets, ranks)
