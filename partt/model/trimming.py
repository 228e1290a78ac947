"""Trimming, a regularisation of the published training: long jets of a batch lose random particles.

Axes: B jets.
"""

import operator
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from partt.jet_inputs import Collection
from partt.model.grouping import jet_of_row

QUANTILES = (0.9, 1.02)  # q is drawn uniformly from here; above 1 nothing is cut


def trim_jets(offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Trim jets with offsets (B + 1) to a random quantile of their multiplicities.

    Return the rows that are kept, in order, and the new offsets. Long jets lose random particles.
    """
    lengths = offsets.diff()
    quantile = torch.empty((), dtype=torch.float64, device=offsets.device).uniform_(*QUANTILES).clamp(max=1)
    limit = torch.quantile(lengths.double(), quantile).long().clamp(min=1)
    jets = jet_of_row(offsets)
    chance = torch.rand(len(jets), dtype=torch.float64, device=offsets.device)
    order = (jets + chance).argsort()  # jet after jet, each in random order
    rank = torch.arange(len(order), device=offsets.device) - offsets[jets]
    kept = order[rank < limit].sort().values
    return kept, functional.pad(torch.minimum(lengths, limit).cumsum(0), (1, 0))


def trim_collections(
    collections: Mapping[str, Collection],
) -> tuple[dict[str, Collection], dict[str, Tensor]]:
    """Return the collections, each trimmed for itself, and the rows that are kept of each."""
    trimmed, kept = {}, {}
    for name, collection in collections.items():
        kept[name], offsets = trim_jets(collection.offsets)
        trimmed[name] = collection.with_rows(operator.itemgetter(kept[name]), offsets)
    return trimmed, kept
