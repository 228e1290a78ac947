"""Features of pairs of particles that bias the attention: four sets, by the names that configs use.

Every set is finite, with finite gradients, for every finite momentum.

Axes: P particles (of a jet, or of all jets of a batch), N pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from partt.physics.four_vectors import (
    azimuth,
    cos_and_sin,
    direction,
    mass_squared,
    momentum,
    rapidity,
    transverse_momentum,
    wrap_angle,
)

PAIR_FEATURES = ("ln_kt", "ln_z", "ln_delta", "ln_m2")
EPSILON = 1e-8


def pair_features(momenta: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the features (..., N, 4) of the pairs (first, second) of particles.

    momenta (..., P, 4) in GeV; first and second (N,) count along P. With Δ² = Δy² + Δφ² and ε = 1e-8:

        ln_kt = ln max(min(pTi, pTj) Δ, ε)            ln_delta = ln max(Δ, ε)
        ln_z  = ln max(min(pTi, pTj) / max(pTi + pTj, ε), ε)
        ln_m2 = ln max((Ei + Ej)² - |pi + pj|², ε)

    Symmetric in the two particles; unchanged by rotations about z and boosts along z.
    """
    # For close particles, differences of y and phi depend on their rounding to float32. Rounded from float64,
    # they are the same numbers in torch and in an exported network.
    precise = momenta.double()
    pt, y, phi = (f(precise).to(momenta.dtype) for f in (transverse_momentum, rapidity, azimuth))  # (..., P)

    def both(values: Tensor) -> tuple[Tensor, Tensor]:
        return values.index_select(-1, first), values.index_select(-1, second)  # (..., N)

    (pt_i, pt_j), (y_i, y_j), (phi_i, phi_j) = both(pt), both(y), both(phi)
    # Squares instead of square roots: their gradient is finite where the particles coincide.
    delta_squared = (y_i - y_j).square() + wrap_angle(phi_i - phi_j).square()
    pt_min = torch.minimum(pt_i, pt_j)
    ln_delta = 0.5 * delta_squared.clamp(min=EPSILON**2).log()
    ln_kt = 0.5 * (pt_min.square() * delta_squared).clamp(min=EPSILON**2).log()
    ln_z = (pt_min / (pt_i + pt_j).clamp(min=EPSILON)).clamp(min=EPSILON).log()
    pair_momenta = momenta.index_select(-2, first) + momenta.index_select(-2, second)  # (..., N, 4)
    ln_m2 = mass_squared(pair_momenta).clamp(min=EPSILON).log()
    return torch.stack((ln_kt, ln_z, ln_delta, ln_m2), dim=-1)


def jet_pair_features(momenta: Tensor, first: Tensor, second: Tensor, jets: Tensor) -> Tensor:
    """Return `pair_features` and two relative to the jet (..., N, 6), as CMS's GloParT takes them.

    jets (..., P, 4): the momentum of the jet of each particle, the sum of all its particles.

        ln_kt_rel = ln_kt - ln max(pT(jet), ε) + 7.5        ln_m2_rel = ln_m2 - ln max(m²(jet), ε) + 10
    """
    ln_kt, ln_z, ln_delta, ln_m2 = pair_features(momenta, first, second).unbind(-1)
    jets = jets.index_select(-2, first)  # (..., N, 4)
    ln_kt_rel = ln_kt - transverse_momentum(jets).clamp(min=EPSILON).log() + 7.5
    ln_m2_rel = ln_m2 - mass_squared(jets).clamp(min=EPSILON).log() + 10
    return torch.stack((ln_kt, ln_kt_rel, ln_z, ln_delta, ln_m2, ln_m2_rel), dim=-1)


def lepton_collider_pair_features(momenta: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return features (..., N, 6) that treat all directions alike, for e+e- collisions.

    With the angle θ between the particles:

        ln_m2 = ln max((Ei + Ej)² - |pi + pj|², ε)        cos θ        sin θ
        ln_kt = ln max(min(|pi|, |pj|) sin θ, ε)
        ln_z  = ln max(min(|pi|, |pj|) / max(|pi| + |pj|, ε), ε)
        ln_jade = ln max(Ei Ej (1 - cos θ), ε)

    Symmetric in the two particles; unchanged by all rotations.
    """
    precise = momenta.double()
    size, unit = momentum(precise).to(momenta.dtype), direction(precise).to(momenta.dtype)
    size_i, size_j = size.index_select(-1, first), size.index_select(-1, second)  # (..., N)
    cos, sin = cos_and_sin(unit.index_select(-2, first), unit.index_select(-2, second))
    particle_i, particle_j = momenta.index_select(-2, first), momenta.index_select(-2, second)  # (..., N, 4)
    smaller = torch.minimum(size_i, size_j)
    ln_m2 = mass_squared(particle_i + particle_j).clamp(min=EPSILON).log()
    ln_kt = (smaller * sin).clamp(min=EPSILON).log()
    ln_z = (smaller / (size_i + size_j).clamp(min=EPSILON)).clamp(min=EPSILON).log()
    ln_jade = (particle_i[..., 3] * particle_j[..., 3] * (1 - cos)).clamp(min=EPSILON).log()
    return torch.stack((ln_m2, cos, sin, ln_kt, ln_z, ln_jade), dim=-1)


def position_pair_features(positions: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return features (..., N, 7) of particles whose "momenta" are positions x, y, z and times t.

    With d = (x, y, z)i - (x, y, z)j, and θ the angle between the two positions:

        ln_d2 = ln max(d², ε)        cos θ        sin θ        asinh(ti - tj)        dx        dy        dz

    The last four change sign when the particles are exchanged.
    """
    unit = direction(positions.double()).to(positions.dtype)
    cos, sin = cos_and_sin(unit.index_select(-2, first), unit.index_select(-2, second))
    difference = positions.index_select(-2, first) - positions.index_select(-2, second)  # (..., N, 4)
    dx, dy, dz, dt = difference.unbind(-1)
    ln_d2 = (dx.square() + dy.square() + dz.square()).clamp(min=EPSILON).log()
    return torch.stack((ln_d2, cos, sin, dt.asinh(), dx, dy, dz), dim=-1)


@dataclass(frozen=True)
class PairFeatureSet:
    """A function of momenta, first and second (and of the jets' momenta), and what it returns."""

    names: tuple[str, ...]
    compute: Callable[..., Tensor]
    symmetric: bool = True  # the same for i, j and j, i
    of_jet: bool = False  # takes the momentum of the jet too


PAIR_FEATURE_SETS = {
    "pp": PairFeatureSet(PAIR_FEATURES, pair_features),
    "pp_jet": PairFeatureSet(
        ("ln_kt", "ln_kt_rel", "ln_z", "ln_delta", "ln_m2", "ln_m2_rel"), jet_pair_features, of_jet=True
    ),
    "ee": PairFeatureSet(("ln_m2", "cos", "sin", "ln_kt", "ln_z", "ln_jade"), lepton_collider_pair_features),
    "xyzt": PairFeatureSet(
        ("ln_d2", "cos", "sin", "asinh_dt", "dx", "dy", "dz"), position_pair_features, symmetric=False
    ),
}
