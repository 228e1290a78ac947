"""Trimming, a regularisation of the published training: long jets of a batch lose random particles.

Axes: B jets.
"""

import operator
from collections.abc import Mapping

import torch
from torch import Tensor

from partt.jet_inputs import Collection, Layout
from partt.model.grouping import jet_of_row

QUANTILES = (0.9, 1.02)  # q is drawn uniformly from here; above 1 nothing is cut


def trim_jets(layout: Layout) -> tuple[Tensor, Layout]:
    """Trim jets to a random quantile of their multiplicities, which the host draws.

    Return the rows that are kept, in order, and the new layout. Long jets lose random particles.
    """
    quantile = torch.empty((), dtype=torch.float64).uniform_(*QUANTILES).clamp(max=1)
    limit = max(int(torch.quantile(layout.host_lengths.double(), quantile)), 1)
    jets = jet_of_row(layout.offsets, layout.num_rows)
    chance = torch.rand(len(jets), dtype=torch.float64, device=layout.device)
    order = (jets + chance).argsort()  # jet after jet, each in random order
    trimmed = Layout.of_lengths(layout.lengths.clamp(max=limit), layout.host_lengths.clamp(max=limit))
    shift = layout.offsets[:-1] - trimmed.offsets[:-1]  # (B,)
    rows = torch.arange(trimmed.num_rows, device=layout.device)
    kept = order[rows + shift[jet_of_row(trimmed.offsets, trimmed.num_rows)]]
    return kept.sort().values, trimmed


def trim_collections(
    collections: Mapping[str, Collection],
) -> tuple[dict[str, Collection], dict[str, Tensor]]:
    """Return the collections, each trimmed for itself, and the rows that are kept of each."""
    trimmed, kept = {}, {}
    for name, collection in collections.items():
        kept[name], layout = trim_jets(collection.layout)
        trimmed[name] = collection.with_rows(operator.itemgetter(kept[name]), layout)
    return trimmed, kept
