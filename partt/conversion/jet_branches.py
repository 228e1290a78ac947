"""Momenta of particles -> branches of particles and jets; a jet is the sum of its particles.

Axes: N jets, P slots for particles, T particles of all jets together.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from partt.data.jagged import Array, Column, Jagged
from partt.errors import DataError

Offsets = npt.NDArray[np.int64]
MAX_MOMENTUM = 1e15  # GeV; squares of sums stay finite, in float32 too
TINY = 1e-36  # GeV; keeps the pseudorapidity along the beam finite


def jet_offsets(real: npt.NDArray[np.bool_]) -> Offsets:
    """Return the offsets (N + 1,) of values[real]; `real` (N, P) marks the slots that hold a particle."""
    return np.concatenate([[0], np.cumsum(real.sum(axis=1))])


def jet_branches(
    px: Array, py: Array, pz: Array, energy: Array, offsets: Offsets, *, path: Path, first_entry: int
) -> dict[str, Column]:
    """Return the branches of particles (T,), in GeV, and of their jets (N,).

    A jet with a momentum beyond MAX_MOMENTUM is an error, which names the file and the entry.

    part_deta is multiplied by the sign of jet_eta, as in JetClass. jet_nparticles is also written as n_parts,
    its name in the published configs of the top and quark-gluon datasets.
    """
    momenta = [values.astype(np.float64) for values in (px, py, pz, energy)]
    num_particles = np.diff(offsets)
    jet = np.repeat(np.arange(len(num_particles)), num_particles)
    for values in momenta:
        wrong = ~(np.abs(values) <= MAX_MOMENTUM)
        if wrong.any():
            entry = first_entry + jet[np.argmax(wrong)]
            raise DataError(
                f"{path}, entry {entry}: a momentum is {values[np.argmax(wrong)]:g} GeV; the file is damaged"
            )
    jet_px, jet_py, jet_pz, jet_energy = (
        np.bincount(jet, weights=values, minlength=len(num_particles)) for values in momenta
    )
    jet_eta, jet_phi = pseudorapidity(jet_px, jet_py, jet_pz), np.arctan2(jet_py, jet_px)
    deta = np.where(jet_eta < 0, -1, 1)[jet] * (pseudorapidity(*momenta[:3]) - jet_eta[jet])
    dphi = wrap_angle(np.arctan2(momenta[1], momenta[0]) - jet_phi[jet])
    of_particles = dict(zip(("px", "py", "pz", "energy"), momenta, strict=True))
    of_particles |= {"deta": deta, "dphi": dphi}
    of_jets = {
        "jet_pt": np.hypot(jet_px, jet_py),
        "jet_eta": jet_eta,
        "jet_phi": jet_phi,
        "jet_energy": jet_energy,
        "jet_mass": np.sqrt(np.maximum(jet_energy**2 - jet_px**2 - jet_py**2 - jet_pz**2, 0)),
        "jet_nparticles": num_particles,
        "n_parts": num_particles,
    }
    return {
        **{f"part_{name}": Jagged(x.astype(np.float32), offsets) for name, x in of_particles.items()},
        **{name: x.astype(np.float32) for name, x in of_jets.items()},
    }


def pseudorapidity(px: Array, py: Array, pz: Array) -> Array:
    """Return eta = arsinh(pz / pT)."""
    return np.arcsinh(pz / np.maximum(np.hypot(px, py), TINY))


def wrap_angle(angle: Array) -> Array:
    """Return the angle in [-pi, pi)."""
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi
