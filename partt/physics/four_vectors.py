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


def momentum(momenta: Tensor) -> Tensor:
    """Return |p| = sqrt(px² + py² + pz²)."""
    return momenta[..., :3].square().sum(-1).clamp(min=_TINY).sqrt()


def direction(momenta: Tensor) -> Tensor:
    """Return the unit vector p / |p| (..., 3), and 0 for a particle at rest."""
    return momenta[..., :3] / momentum(momenta).clamp(min=1e-8)[..., None]


def cos_and_sin(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angle between unit vectors (..., 3)."""
    (x1, y1, z1), (x2, y2, z2) = first.unbind(-1), second.unbind(-1)
    cos = x1 * x2 + y1 * y2 + z1 * z2
    cross = (y1 * z2 - z1 * y2).square() + (z1 * x2 - x1 * z2).square() + (x1 * y2 - y1 * x2).square()
    return cos.clamp(-1, 1), cross.clamp(min=_TINY).sqrt().clamp(max=1)
