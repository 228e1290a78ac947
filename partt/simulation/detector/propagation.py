"""Trajectories in the solenoid: straight for neutral particles, a helix for charged ones.

A charged particle moves on x = x_c - r sin(phi), y = y_c + r cos(phi), with phi the direction of its
momentum and r = pT / (0.2998 q B) (m, GeV, T), signed like the charge; z grows by pz / pT per unit of
transverse path r (phi_0 - phi). Lengths in mm, momenta in GeV. Axis: P particles.
"""

from dataclasses import dataclass

import numpy as np

from partt.simulation.card import Solenoid
from partt.simulation.generator import Floats

METRES_TESLA_PER_GEV = 1 / 0.299792458
MIN_PT = 10**-4.5  # below, a particle moves along the beam line


@dataclass(frozen=True, eq=False)
class Trajectories:
    """End points of particles in the tracker, and their points of closest approach to the beam line."""

    reaches_detector: np.ndarray[tuple[int], np.dtype[np.bool_]]  # produced inside, not along the beam
    end_eta: Floats  # pseudorapidity and azimuth of the end point, from the origin
    end_phi: Floats
    direction: Floats  # azimuth of the momentum at the point of closest approach
    d0: Floats  # (x py - y px) / pT at that point
    dz: Floats  # z of that point


def propagate(solenoid: Solenoid, charge: Floats, vertex: Floats, momentum: Floats) -> Trajectories:
    """Follow particles from their production vertex (3, P) to the barrel or the end caps."""
    x, y, z = vertex
    px, py, _ = momentum
    pt = np.hypot(px, py)
    inside = (np.hypot(x, y) <= solenoid.radius) & (np.abs(z) <= solenoid.half_length) & (pt > MIN_PT)
    bends = inside & (charge != 0) & (solenoid.field != 0)
    straight = inside & ~bends

    end = np.zeros_like(vertex)
    direction, d0, dz = np.arctan2(py, px), np.zeros_like(x), np.zeros_like(x)
    end[:, straight], d0[straight], dz[straight] = _line(solenoid, vertex[:, straight], momentum[:, straight])
    end[:, bends], direction[bends], d0[bends], dz[bends] = _helix(
        solenoid, charge[bends], vertex[:, bends], momentum[:, bends]
    )
    radius = np.hypot(end[0], end[1])
    reaches = inside & np.isfinite(end).all(axis=0) & (radius > 0)
    end_eta = np.arcsinh(np.where(reaches, end[2], 0.0) / np.where(reaches, radius, 1.0))
    return Trajectories(reaches, end_eta, np.arctan2(end[1], end[0]), direction, d0, dz)


def _line(solenoid: Solenoid, vertex: Floats, momentum: Floats) -> tuple[Floats, Floats, Floats]:
    """Return end point, d0 and dz of straight trajectories."""
    (x, y, z), (px, py, pz) = vertex, momentum
    pt = np.hypot(px, py)
    d0 = (x * py - y * px) / pt
    to_closest = -(x * px + y * py) / pt  # transverse path to the point of closest approach
    to_barrel = to_closest + np.sqrt(np.maximum(solenoid.radius**2 - d0**2, 0.0))
    path = np.minimum(to_barrel, _path_to_end_cap(solenoid, z, pz, pt))
    return vertex + momentum / pt * path, d0, z + pz / pt * to_closest


def _helix(
    solenoid: Solenoid, charge: Floats, vertex: Floats, momentum: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return end point, direction, d0 and dz of helical trajectories."""
    (x, y, z), (px, py, pz) = vertex, momentum
    pt, phi = np.hypot(px, py), np.arctan2(py, px)
    r = 1000 * METRES_TESLA_PER_GEV * pt / (charge * solenoid.field)
    centre_x, centre_y = x + r * np.sin(phi), y - r * np.cos(phi)
    to_centre = np.hypot(centre_x, centre_y)

    direction = np.arctan2(np.sign(r) * centre_x, -np.sign(r) * centre_y)
    turn = np.remainder(phi - direction + np.pi, 2 * np.pi) - np.pi
    to_closest = r * turn  # transverse path; negative if the point lies before the vertex
    closest_x, closest_y = centre_x - r * np.sin(direction), centre_y + r * np.cos(direction)
    d0 = closest_x * np.sin(direction) - closest_y * np.cos(direction)
    dz = z + pz / pt * to_closest

    # The circle leaves the barrel an angle `opening` after the point of closest approach, or never.
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = (r**2 + to_centre**2 - solenoid.radius**2) / (2 * np.abs(r) * to_centre)
    crosses = np.abs(r) + to_centre >= solenoid.radius
    opening = np.arccos(np.clip(np.where(crosses, cosine, 0.0), -1.0, 1.0))
    to_barrel = np.where(crosses, to_closest + np.abs(r) * opening, np.inf)
    path = np.minimum(to_barrel, _path_to_end_cap(solenoid, z, pz, pt))

    with np.errstate(invalid="ignore"):  # the path is infinite for a circle inside the barrel with pz = 0
        end_phi = phi - path / r
        end = np.stack([centre_x - r * np.sin(end_phi), centre_y + r * np.cos(end_phi), z + pz / pt * path])
    return end, direction, d0, dz


def _path_to_end_cap(solenoid: Solenoid, z: Floats, pz: Floats, pt: Floats) -> Floats:
    """Return the transverse path to the end cap, |z| = half length, in the direction of pz."""
    with np.errstate(divide="ignore"):
        return (solenoid.half_length - np.sign(pz) * z) * pt / np.abs(pz)
