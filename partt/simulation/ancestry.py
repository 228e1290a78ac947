"""Where particles come from: the decays of long-lived hadrons and taus in the generated event.

Axes: P particles asked for.
"""

from enum import IntEnum

import numpy as np
from particle import pdgid

from partt.simulation.generator import Events, Integers

TAU = 15
MIN_FLIGHT = 0.001  # mm; what decays sooner, such as a D*, belongs to the vertex that it comes from
MAX_GENERATIONS = 1000


class ParticleOrigin(IntEnum):
    """What decayed to a particle; the values of part_origin."""

    UNKNOWN = -1  # neutral candidates: calorimeter energy, perhaps of several particles
    PRIMARY = 0
    BOTTOM = 1  # decay of a b hadron
    BOTTOM_TO_CHARM = 2  # decay of a c hadron from the decay of a b hadron
    CHARM = 3  # decay of another c hadron
    TAU = 4
    STRANGE = 5  # decay of a K0S, Lambda or other strange hadron, whatever that comes from


def displaced_parents(events: Events, rows: Integers) -> Integers:
    """Return the row of the b, c or strange hadron or tau that flew and decayed to each particle (P,).

    It is the nearest such ancestor; -1 for particles from the primary vertex, and for rows of -1.
    """
    parents = np.full(len(rows), -1)
    positions = np.stack([events.x, events.y, events.z])
    searching = np.flatnonzero(rows >= 0)
    child = rows[searching]
    for _ in range(MAX_GENERATIONS):
        mother = events.mother[child]
        searching, child, mother = (array[mother >= 0] for array in (searching, child, mother))
        if not len(searching):
            return parents
        flight = np.linalg.norm(positions[:, child] - positions[:, mother], axis=0)
        found = (flight > MIN_FLIGHT) & (_flavours(events, mother) != ParticleOrigin.PRIMARY)
        parents[searching[found]] = mother[found]
        searching, child = searching[~found], mother[~found]
    raise ValueError(f"a particle has more than {MAX_GENERATIONS} ancestors")


def origins(events: Events, rows: Integers) -> Integers:
    """Return the origin of each particle (P,); unknown for rows of -1."""
    parents = displaced_parents(events, rows)
    found = np.where(rows >= 0, _flavours(events, parents), ParticleOrigin.UNKNOWN)
    charm = np.flatnonzero(found == ParticleOrigin.CHARM)
    before = _flavours(events, displaced_parents(events, parents[charm]))
    found[charm[before == ParticleOrigin.BOTTOM]] = ParticleOrigin.BOTTOM_TO_CHARM
    return found


def _flavours(events: Events, rows: Integers) -> Integers:
    """Return the origin that a particle gives to its decay products; PRIMARY for rows of -1."""
    codes, row = np.unique(np.where(rows >= 0, events.pid[rows], 0), return_inverse=True)
    return np.array([_flavour(int(code)) for code in codes], dtype=np.int64)[row]


def _flavour(code: int) -> ParticleOrigin:
    """Return BOTTOM, CHARM or STRANGE for hadrons, by their heaviest quark, and TAU; PRIMARY for others."""
    if abs(code) == TAU:
        return ParticleOrigin.TAU
    if not pdgid.is_hadron(code):
        return ParticleOrigin.PRIMARY
    if pdgid.has_bottom(code):
        return ParticleOrigin.BOTTOM
    if pdgid.has_charm(code):
        return ParticleOrigin.CHARM
    return ParticleOrigin.STRANGE if pdgid.has_strange(code) else ParticleOrigin.PRIMARY
