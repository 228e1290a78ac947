"""Tracks of jets -> secondary vertices, by the true decay that the tracks come from.

Which tracks share a vertex is Pythia's truth; its position is fitted to their measured impact parameters.
Axes: K tracks, V vertices.
"""

from dataclasses import dataclass

import numpy as np

from partt.simulation.ancestry import displaced_parents
from partt.simulation.detector.response import Candidates
from partt.simulation.generator import Events, Floats, Integers

MIN_TRACKS = 2
MIN_SIGNIFICANCE = 3.0  # of the flight distance
PION_MASS = 0.13957  # GeV


@dataclass(frozen=True, eq=False)
class Vertices:
    """Secondary vertices, by jet and decreasing significance of the flight distance; GeV and mm."""

    jet: Integers  # (V,)
    parent: Integers  # row of the decayed particle in the events
    num_tracks: Integers
    momentum: Floats  # (V, 3)
    energy: Floats
    position: Floats  # (V, 3)
    covariance: Floats  # (V, 3, 3) of the position
    chi2: Floats  # of the fit, with 2 num_tracks - 3 degrees of freedom

    @property
    def mass(self) -> Floats:
        """Invariant mass of the tracks (V,)."""
        squared: Floats = self.energy**2 - (self.momentum**2).sum(axis=1)
        return np.sqrt(np.maximum(squared, 0.0))

    @property
    def pointing(self) -> Floats:
        """Cosine of the angle between the momentum and the line from the primary vertex (V,)."""
        lengths = np.linalg.norm(self.momentum, axis=1) * np.linalg.norm(self.position, axis=1)
        cosine: Floats = (self.momentum * self.position).sum(axis=1) / lengths
        return cosine

    def distance(self, dimensions: int) -> tuple[Floats, Floats]:
        """Return the distance from the primary vertex, transverse (2) or in space (3), and its error."""
        position, covariance = self.position[:, :dimensions], self.covariance[:, :dimensions, :dimensions]
        distance = np.linalg.norm(position, axis=1)
        direction = position / distance[:, None]
        return distance, np.sqrt(np.einsum("vi,vij,vj->v", direction, covariance, direction))

    def take(self, rows: Integers) -> "Vertices":
        """Return the given vertices, in the given order."""
        return Vertices(**{name: values[rows] for name, values in vars(self).items()})


def find_vertices(events: Events, tracks: Candidates, jet: Integers) -> Vertices:
    """Return the fitted vertices that lie more than three errors from the primary vertex, the origin.

    `tracks` are candidates (neutral ones are ignored) of the jets numbered `jet`.
    """
    vertices = fit_vertices(events, tracks, jet)
    distance, error = vertices.distance(3)
    significance = distance / error
    order = np.lexsort((-significance, vertices.jet))
    return vertices.take(order[significance[order] > MIN_SIGNIFICANCE])


def fit_vertices(events: Events, tracks: Candidates, jet: Integers) -> Vertices:
    """Fit the position of each decay of a b, c or strange hadron or tau with two tracks of a jet or more.

    Least squares around the true position v. With phi and theta the direction of a track at the vertex, the
    track measures two projections of (position - v): on (sin phi, -cos phi, 0), with the error of d0, and on
    (-cot theta cos phi, -cot theta sin phi, 1), with the error of dz. What it measures is the difference
    between its measured and true d0 and dz. Momenta are true, as the tracker measures them, with pion masses.
    """
    parent = displaced_parents(events, tracks.particle)
    usable = np.flatnonzero((parent >= 0) & (tracks.d0_error > 0) & (tracks.dz_error > 0))
    key = jet[usable] * len(events.pid) + parent[usable]
    order = np.argsort(key, kind="stable")
    count = np.unique(key, return_counts=True)[1]
    shared = np.repeat(count >= MIN_TRACKS, count)
    used = usable[order[shared]]  # (K,) tracks, vertex by vertex
    count = count[count >= MIN_TRACKS]
    start = np.cumsum(count) - count
    tracks, jet, parent = tracks.take(used), jet[used], parent[used]

    def total(values: Floats) -> Floats:
        """Sum over the tracks of each vertex."""
        return np.add.reduceat(values, start) if len(start) else values

    rows = tracks.particle
    px, py, pz = events.px[rows], events.py[rows], events.pz[rows]
    pt = np.hypot(px, py)
    transverse = np.stack([py / pt, -px / pt, np.zeros_like(pt)], axis=1)
    longitudinal = np.stack([-px * pz / pt**2, -py * pz / pt**2, np.ones_like(pt)], axis=1)
    information, pull, chi2 = np.zeros((len(rows), 3, 3)), np.zeros((len(rows), 3)), np.zeros(len(rows))
    for direction, shift, error in (
        (transverse, tracks.d0_shift, tracks.d0_error),
        (longitudinal, tracks.dz_shift, tracks.dz_error),
    ):
        scaled = direction / error[:, None]
        information += scaled[:, :, None] * scaled[:, None, :]
        pull += scaled * (shift / error)[:, None]
        chi2 += (shift / error) ** 2
    covariance: Floats = np.linalg.inv(total(information)).astype(np.float64, copy=False)
    pull = total(pull)
    shift = np.einsum("vij,vj->vi", covariance, pull)
    momentum = np.stack([px, py, pz], axis=1)
    return Vertices(
        jet=jet[start],
        parent=parent[start],
        num_tracks=count,
        momentum=total(momentum),
        energy=total(np.sqrt((momentum**2).sum(axis=1) + PION_MASS**2)),
        position=decay_positions(events, parent[start]) + shift,
        covariance=covariance,
        chi2=total(chi2) - (shift * pull).sum(axis=1),
    )


def decay_positions(events: Events, parent: Integers) -> Floats:
    """Return where particles decayed (V, 3)."""
    daughter = events.first_daughter[parent]
    return np.stack([events.x[daughter], events.y[daughter], events.z[daughter]], axis=1)
