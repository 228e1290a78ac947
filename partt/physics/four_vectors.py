"""Kinematics of particles: pure functions of four-momenta.

Axes: momenta (..., 4) as px, py, pz, E in GeV; results (...). Every function is finite, with finite
gradients, for every finite momentum, however unphysical (E < |p|, E = 0, pT = 0).
"""

import math

import torch
from torch import Tensor

_TINY = 1e-36  # below every momentum that occurs, above the smallest float32


def transverse_momentum(momenta: Tensor) -> Tensor:
    """Return pT = sqrt(px² + py²)."""
    # The floor only keeps the gradient of the square root finite at pT = 0.
    return momenta[..., :2].square().sum(-1).clamp(min=_TINY).sqrt()


def rapidity(momenta: Tensor) -> Tensor:
    """Return y = 1/2 ln((E + pz) / (E - pz)), as 1/2 ln(1 + 2 pz / (E - pz)) with guards."""
    pz, energy = momenta[..., 2], momenta[..., 3]
    ratio = 1 + 2 * pz / (energy - pz).clamp(min=1e-20)
    return 0.5 * ratio.clamp(min=1e-20).log()


def azimuth(momenta: Tensor) -> Tensor:
    """Return phi = atan2(py, px), and 0 for a particle along the beam."""
    px, py = momenta[..., 0], momenta[..., 1]
    along_beam = px.square() + py.square() < _TINY
    px = torch.where(along_beam, 1.0, px)  # at 0, 0 the gradient is NaN
    if momenta.dtype != torch.float64:
        return torch.atan2(py, px)
    # ONNX Runtime has sine and cosine in float64, but no arctangent: one Newton step from phi in float32.
    phi = torch.atan2(py.float(), px.float()).double()
    return phi + (py * phi.cos() - px * phi.sin()) * torch.rsqrt(px.square() + py.square())


def wrap_angle(angle: Tensor) -> Tensor:
    """Return the angle in [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def mass_squared(momenta: Tensor) -> Tensor:
    """Return m² = E² - px² - py² - pz²; rounding, or E < |p|, may make it negative."""
    px, py, pz, energy = momenta.unbind(-1)
    return energy.square() - (px.square() + py.square() + pz.square())
