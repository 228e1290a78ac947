"""Groups of jets of similar length, the only place with padding.

Axes: B jets, T particles of all jets; G jets of a group, P its longest jet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from partt.jet_inputs import Layout

TOLERATED_LENGTH = 0.9  # of the shortest jet of a group, relative to the longest


@dataclass(frozen=True)
class GroupSize:
    """How large groups may be on a device, and how much padding is cheaper than another group."""

    max_rows: int
    max_pairs: int | None  # of particles of the same jet, which bounds the memory of long jets
    tolerated_padding: int  # rows of a group


# Groups of about this many particles keep a block's activations in a CPU's cache (see
# benchmarks/bench_model.py); a GPU wants few and large launches.
GROUP_SIZES = {"cpu": GroupSize(1024, None, 128)}
GROUP_SIZE_ELSEWHERE = GroupSize(32_768, 2**21, 2048)


@dataclass(frozen=True, eq=False)
class JetGroup:
    """Jets of similar length, padded to the longest."""

    jets: Tensor  # (G,) their positions in the batch
    rows: Tensor  # (G, P) the packed row of every slot; padding repeats some row of the batch
    mask: Tensor | None  # (G, P) True = real particle; None: no padding


def group_jets(layout: Layout, size: GroupSize | None = None, min_length: int = 1) -> list[JetGroup]:
    """Sort jets by length and cut them into groups with little padding; the host knows where.

    A group has at least `min_length` slots, at least one, even for empty jets.
    """
    size = size or GROUP_SIZES.get(layout.device.type, GROUP_SIZE_ELSEWHERE)
    lengths, order = layout.lengths.sort(stable=True)  # (B,)
    sorted_lengths = layout.host_lengths.sort().values.tolist()
    last_row = max(layout.num_rows - 1, 0)
    groups = []
    for start, end in _cut(sorted_lengths, size, min_length):
        jets = order[start:end]
        longest = max(sorted_lengths[end - 1], min_length)
        slots = torch.arange(longest, device=layout.device)
        rows = (layout.offsets[jets, None] + slots).clamp(max=last_row)
        full = sorted_lengths[start] == longest
        groups.append(JetGroup(jets, rows, None if full else slots < lengths[start:end, None]))
    return groups


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return values (T, K) at rows (...): (..., K); zeros if there are no values at all."""
    if len(values) == 0:
        return values.new_zeros(*rows.shape, values.shape[1])
    return values.index_select(0, rows.flatten()).view(*rows.shape, values.shape[1])


def split_rows(values: Tensor, groups: Sequence[JetGroup]) -> list[Tensor]:
    """Return packed values (T, K) group by group, (G, P, K) each."""
    rows = torch.cat([group.rows.flatten() for group in groups])
    parts = torch.split(take_rows(values, rows), [group.rows.numel() for group in groups])
    return [part.view(*group.rows.shape, -1) for part, group in zip(parts, groups, strict=True)]


def in_order(parts: Sequence[Tensor], groups: Sequence[JetGroup]) -> Tensor:
    """Return values of the jets of groups, (G, K) each, in the order of the batch (B, K)."""
    return torch.cat(list(parts))[torch.cat([group.jets for group in groups]).argsort()]


def join_rows(parts: Sequence[Tensor], groups: Sequence[JetGroup], layout: Layout) -> Tensor:
    """Return values of groups, (G, P, K) each, as packed rows (T, K): the inverse of `split_rows`."""
    starts, first_slots = 0, []
    for group in groups:  # of each jet, among the slots of all groups
        num_jets, num_slots = group.rows.shape
        first_slots.append(starts + num_slots * torch.arange(num_jets, device=layout.device))
        starts += group.rows.numel()
    shift = in_order(first_slots, groups) - layout.offsets[:-1]  # (B,)
    rows = torch.arange(layout.num_rows, device=layout.device)
    places = rows + shift[jet_of_row(layout.offsets, layout.num_rows)]
    return torch.cat([part.flatten(0, 1) for part in parts]).index_select(0, places)


def jet_of_row(offsets: Tensor, num_rows: int | None = None) -> Tensor:
    """Return the jet of every packed row (T,); without their number, a GPU is waited for."""
    lengths = offsets.diff()
    jets = torch.arange(len(lengths), device=offsets.device)
    return jets.repeat_interleave(lengths, output_size=num_rows)


def sum_over_jets(x: Tensor, offsets: Tensor) -> Tensor:
    """Return the sums (B, ...) of the rows of x (T, ...) over each jet, in float32 if x is in bfloat16."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    sums = torch.zeros(len(offsets) - 1, *x.shape[1:], dtype=x.dtype, device=x.device)
    return sums.index_add(0, jet_of_row(offsets, len(x)), x)


def _cut(sorted_lengths: list[int], size: GroupSize, min_length: int) -> list[tuple[int, int]]:
    """Return (start, end) of every group, from the longest jets down."""
    cuts = []
    end = len(sorted_lengths)
    while end > 0:
        longest = max(sorted_lengths[end - 1], min_length)
        num_jets = size.max_rows // longest
        if size.max_pairs is not None:
            num_jets = min(num_jets, size.max_pairs // longest**2)
        start = max(0, end - max(1, num_jets))
        shortest = int(TOLERATED_LENGTH * sorted_lengths[end - 1]) - 2
        padding = sum(longest - length for length in sorted_lengths[start:end])
        while sorted_lengths[start] < shortest and padding > size.tolerated_padding:
            padding -= longest - sorted_lengths[start]
            start += 1
        cuts.append((start, end))
        end = start
    return cuts
