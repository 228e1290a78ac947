"""The regulariser of the published training: long jets of a batch lose random particles.

Axes: B jets, T particles of all jets.
"""

import torch
from torch import Tensor

from partt.model.packing import jet_of_row

QUANTILES = (0.9, 1.02)  # q is drawn uniformly from here; above 1 nothing is cut


def trim_jets(particles: Tensor, momenta: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a batch to a random quantile of its multiplicities; which particles a jet loses is random.

    Takes and returns features (T, F), momenta (T, 4) and offsets (B + 1).
    """
    lengths = offsets.diff()
    quantile = torch.empty((), dtype=torch.float64, device=offsets.device).uniform_(*QUANTILES).clamp(max=1)
    limit = torch.quantile(lengths.double(), quantile).long().clamp(min=1)
    jets = jet_of_row(offsets)
    chance = torch.rand(len(jets), dtype=torch.float64, device=offsets.device)
    order = (jets + chance).argsort()  # jet after jet, each in random order
    rank = torch.arange(len(order), device=offsets.device) - offsets[jets]
    kept = order[rank < limit].sort().values
    new_lengths = torch.minimum(lengths, limit)
    return particles[kept], momenta[kept], torch.nn.functional.pad(new_lengths.cumsum(0), (1, 0))
