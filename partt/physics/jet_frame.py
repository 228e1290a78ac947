"""The frame of a jet: boosted along the beam to its rapidity, and rotated about the beam to its azimuth.

Axes: J jets; momenta (..., 4) as px, py, pz, E in GeV, vectors (..., 4) as E, px, py, pz.
"""

from typing import NamedTuple

import torch
from torch import Tensor

# Beyond |y| = 9, or with pT less than 1e-6 of the energy, a jet has no frame of its own: the lab's is used.
_MIN_TRANSVERSE_MASS = 1e-4
_MIN_PT = 1e-6


class JetFrame(NamedTuple):
    """Boost along the beam and rotation about it, in float64."""

    cosh_y: Tensor  # (J,)
    sinh_y: Tensor  # (J,)
    cos_phi: Tensor  # (J,)
    sin_phi: Tensor  # (J,)

    def take(self, jets: Tensor) -> "JetFrame":
        """Return the frames of some jets."""
        return JetFrame(*(values[jets] for values in self))

    def vectors(self, momenta: Tensor) -> Tensor:
        """Return momenta as vectors in the frames, in float64; the leading axis of both is the same."""
        px, py, pz, energy = momenta.double().unbind(-1)
        axes = (-1, *[1] * (px.ndim - 1))
        cosh_y, sinh_y, cos_phi, sin_phi = (values.view(axes) for values in self)
        return torch.stack(
            (
                energy * cosh_y - pz * sinh_y,
                px * cos_phi + py * sin_phi,
                py * cos_phi - px * sin_phi,
                pz * cosh_y - energy * sinh_y,
            ),
            dim=-1,
        )


def jet_frame(total: Tensor) -> JetFrame:
    """Return the frames of jets with summed momenta (J, 4)."""
    px, py, pz, energy = total.double().unbind(-1)
    mass2, pt2 = energy.square() - pz.square(), px.square() + py.square()
    has_rapidity = (energy > 0) & (mass2 > (_MIN_TRANSVERSE_MASS * energy).square())
    has_azimuth = pt2 > (_MIN_PT * energy).square()
    mass = torch.where(has_rapidity, mass2, 1.0).sqrt()
    pt = torch.where(has_azimuth, pt2, 1.0).sqrt()
    return JetFrame(
        torch.where(has_rapidity, energy / mass, 1.0),
        torch.where(has_rapidity, pz / mass, 0.0),
        torch.where(has_azimuth, px / pt, 1.0),
        torch.where(has_azimuth, py / pt, 0.0),
    )
