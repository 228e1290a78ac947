"""Which particles of an event belong to which of its jets: pure functions of arrays.

Axes: E events, N jets of all events, T particles of all jets.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array, Jagged

Ints = npt.NDArray[np.int64]

REFERENCE_BITS = 0xFFFFFF  # of a fUniqueID; the others are the number of the process


class LinkError(Exception):
    """An index or a reference that leads nowhere; `event` is its position in the chunk."""

    def __init__(self, event: int, text: str) -> None:
        super().__init__(text)
        self.event = event


@dataclass(frozen=True, eq=False)
class LinkedRows:
    """The particles of each jet, and the rows of the table that link them, if there is one."""

    rows: Ints  # (T,) of the particles of all events
    offsets: Ints  # (N + 1,)
    table_rows: Ints | None = None  # (T,)


def by_table(jet: Jagged, particle: Jagged | None, jets: Ints, particles: Ints) -> LinkedRows:
    """Link by a table with positions of jet and particle in the event; negative positions link nothing.

    `jets` and `particles` are offsets (E + 1,). Particles keep the order of the table. Without `particle`,
    row i of an event is its particle i.
    """
    event = np.repeat(np.arange(len(jet)), jet.lengths)
    position = np.arange(jet.offsets[-1]) - jet.offsets[event] if particle is None else particle.contents
    if particle is not None and not np.array_equal(jet.offsets, particle.offsets):
        different = int(np.flatnonzero(jet.lengths != particle.lengths)[0])
        raise LinkError(different, "different numbers of jets and of particles in the rows of the table")
    linked = np.flatnonzero((jet.contents >= 0) & (position >= 0))
    event = event[linked]
    jet_rows = _inside(jet.contents[linked], event, jets, "jet")
    rows = _inside(position[linked], event, particles, "particle")
    order = np.argsort(jet_rows, kind="stable")
    return LinkedRows(rows[order], _offsets(jet_rows, int(jets[-1])), linked[order])


def by_indices(indices: list[Array], jets: Ints, particles: Ints) -> LinkedRows:
    """Link by positions (N,) that the jets have; negative positions link nothing."""
    event = np.repeat(np.arange(len(jets) - 1), np.diff(jets))
    positions = np.stack(indices, axis=1)  # (N, indices)
    jet, which = np.nonzero(positions >= 0)
    rows = _inside(positions[jet, which], event[jet], particles, "particle")
    return LinkedRows(rows, _offsets(jet, int(jets[-1])))


def by_references(references: Jagged, ids: Jagged, jets: Ints) -> tuple[LinkedRows, npt.NDArray[np.bool_]]:
    """Link by references (of N jets) to ids (of E events); also return which references are found.

    References to particles of other collections are not.
    """
    jet = np.repeat(np.arange(len(references)), references.lengths)
    event_of_jet = np.repeat(np.arange(len(jets) - 1), np.diff(jets))
    wanted = _key(references.contents, event_of_jet[jet])
    keys = _key(ids.contents, np.repeat(np.arange(len(ids)), ids.lengths))
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(len(keys) - 1, 0))
    found = keys[order[places]] == wanted if len(keys) else np.zeros(len(wanted), dtype=bool)
    rows = order[places[found]] if len(keys) else np.empty(0, dtype=np.int64)
    return LinkedRows(rows, _offsets(jet[found], len(references))), found


def arranged(offsets: Ints, kept: Array | None, sort_by: Array | None) -> tuple[Ints, Ints]:
    """Return the rows of the particles that are kept, in decreasing order inside each jet, and offsets."""
    jet = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows = np.arange(offsets[-1]) if kept is None else np.flatnonzero((kept != 0) & ~np.isnan(kept))
    if sort_by is not None:
        rows = rows[np.lexsort((-sort_by[rows].astype(np.float64), jet[rows]))]
    return rows, _offsets(jet[rows], len(offsets) - 1)


def _key(ids: Array, event: Ints) -> Ints:
    return event * (REFERENCE_BITS + 1) + (ids.astype(np.int64) & REFERENCE_BITS)


def _inside(positions: Array, event: Ints, offsets: Ints, what: str) -> Ints:
    """Return rows of all events from positions inside events; an event without that position is an error."""
    numbers = np.diff(offsets)[event]
    outside = np.flatnonzero(positions >= numbers)  # before they are added: unsigned ones could wrap around
    if len(outside):
        first = int(outside[0])
        raise LinkError(
            int(event[first]),
            f"{what} {positions[first]} is linked, but the event has only {numbers[first]}",
        )
    return offsets[event] + positions.astype(np.int64)


def _offsets(jet: Ints, num_jets: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(jet, minlength=num_jets))]).astype(np.int64)
