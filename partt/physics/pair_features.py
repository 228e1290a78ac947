"""The four features of a pair of particles that bias the attention (arXiv:2202.03772, eq. 3).

Axes: P particles (of a jet, or of all jets of a batch), N pairs.
"""

import torch
from torch import Tensor

from partt.physics.four_vectors import azimuth, mass_squared, rapidity, transverse_momentum, wrap_angle

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
