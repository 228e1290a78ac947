"""Groups of jets of similar length, the only place with padding.

Axes: B jets, T particles of all jets; G jets of a group, P its longest jet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Groups of about this many particles keep a block's activations in a CPU's cache (see
# benchmarks/bench_model.py); a GPU wants few and large launches.
ROWS_PER_GROUP = {"cpu": 1024}
ROWS_PER_GROUP_ELSEWHERE = 32768
TOLERATED_LENGTH = 0.9  # of the shortest jet of a group, relative to the longest
TOLERATED_PADDING = 128  # rows of a group, about what another group costs


@dataclass(frozen=True, eq=False)
class JetGroup:
    """Jets of similar length, padded to the longest."""

    jets: Tensor  # (G,) their positions in the batch
    rows: Tensor  # (G, P) the packed row of every slot; padding repeats some row of the batch
    mask: Tensor | None  # (G, P) True = real particle; None: no padding


def group_jets(offsets: Tensor, max_rows: int | None = None, min_length: int = 1) -> list[JetGroup]:
    """Sort jets with these offsets (B + 1,) by length and cut them into groups with little padding.

    A group has at least `min_length` slots, at least one, even for empty jets.
    """
    if max_rows is None:
        max_rows = ROWS_PER_GROUP.get(offsets.device.type, ROWS_PER_GROUP_ELSEWHERE)
    lengths, order = offsets.diff().sort(stable=True)  # (B,)
    sorted_lengths = lengths.tolist()
    last_row = (offsets[-1] - 1).clamp(min=0)
    groups = []
    for start, end in _cut(sorted_lengths, max_rows, min_length):
        jets = order[start:end]
        longest = max(sorted_lengths[end - 1], min_length)
        slots = torch.arange(longest, device=offsets.device)
        rows = torch.minimum(offsets[jets, None] + slots, last_row)
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


def join_rows(parts: Sequence[Tensor], groups: Sequence[JetGroup], num_rows: int) -> Tensor:
    """Return values of groups, (G, P, K) each, as packed rows (T, K): the inverse of `split_rows`."""
    packed = parts[0].new_zeros(num_rows, parts[0].shape[2])
    for values, group in zip(parts, groups, strict=True):
        real = slice(None) if group.mask is None else group.mask
        packed = packed.index_copy(0, group.rows[real].flatten(), values[real].reshape(-1, packed.shape[1]))
    return packed


def pad_jets(offsets: Tensor, min_length: int = 1) -> JetGroup:
    """Return all jets as one group, in order, with at least `min_length` slots."""
    lengths = offsets.diff()
    longest = max(int(lengths.max()), min_length)
    slots = torch.arange(longest, device=offsets.device)
    rows = torch.minimum(offsets[:-1, None] + slots, (offsets[-1] - 1).clamp(min=0))
    return JetGroup(torch.arange(len(lengths), device=offsets.device), rows, slots < lengths[:, None])


def jet_of_row(offsets: Tensor) -> Tensor:
    """Return the jet of every packed row (T,)."""
    lengths = offsets.diff()
    return torch.arange(len(lengths), device=offsets.device).repeat_interleave(lengths)


def _cut(sorted_lengths: list[int], max_rows: int, min_length: int) -> list[tuple[int, int]]:
    """Return (start, end) of every group, from the longest jets down."""
    cuts = []
    end = len(sorted_lengths)
    while end > 0:
        longest = max(sorted_lengths[end - 1], min_length)
        start = max(0, end - max(1, max_rows // longest))
        shortest = int(TOLERATED_LENGTH * sorted_lengths[end - 1]) - 2
        padding = sum(longest - length for length in sorted_lengths[start:end])
        while sorted_lengths[start] < shortest and padding > TOLERATED_PADDING:
            padding -= longest - sorted_lengths[start]
            start += 1
        cuts.append((start, end))
        end = start
    return cuts
