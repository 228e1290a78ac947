"""Which hard processes go on to the shower: those with the right neutrinos, and with masses from a range."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pythia8mc

from partt.simulation.processes import NEUTRINOS, Process

NUM_MASS_BINS = 20
SPECTRUM_DEGREE = 2


class FlatMasses:
    """Accepts masses with a probability of 1 / (their density), so that accepted ones are flat in a range.

    The density is learned from `masses`: a histogram in log m, smoothed by the exponential of a polynomial.
    """

    def __init__(self, masses: npt.NDArray[np.float64], mass_range: tuple[float, float], seed: int) -> None:
        edges = np.geomspace(*mass_range, NUM_MASS_BINS + 1)
        counts = np.maximum(np.histogram(masses, edges)[0], 1)
        self._log_density = np.polynomial.Polynomial.fit(
            np.log(edges[1:] * edges[:-1]) / 2,  # centres of the bins
            np.log(counts / np.diff(edges)),
            SPECTRUM_DEGREE,
            w=np.sqrt(counts),
        )
        self._lowest = float(self._log_density(np.log(edges)).min())
        self._random = np.random.default_rng(seed)

    def accepts(self, mass: float) -> bool:
        """Decide on the next event."""
        excess = self._log_density(np.log(mass)) - self._lowest
        return bool(self._random.random() < np.exp(-excess))


class HardProcessVeto(pythia8mc.UserHooks):  # type: ignore[misc]
    """Vetoes, before the shower, events with another number of neutrinos, or with a mass not accepted."""

    def __init__(self, process: Process, flat_masses: FlatMasses | None = None) -> None:
        super().__init__()
        self.process = process
        self.flat_masses = flat_masses

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to veto."""
        return self.process.num_neutrinos is not None or self.flat_masses is not None

    def canVetoProcessLevel(self) -> bool:  # noqa: N802
        """Ask Pythia to call doVetoProcessLevel."""
        return True

    def doVetoProcessLevel(self, record: Any) -> bool:  # noqa: N802
        """Whether to drop an event with this hard process."""
        if self.process.num_neutrinos is not None:
            found = sum(particle.isFinal() and particle.idAbs() in NEUTRINOS for particle in record)
            if found != self.process.num_neutrinos:
                return True
        return self.flat_masses is not None and not self.flat_masses.accepts(
            resonance_mass(record, self.process)
        )


def resonance_mass(record: Any, process: Process) -> float:
    """Return the mass of the resonance that makes the jet, in the record of a hard process (GeV)."""
    for particle in record:
        if particle.idAbs() == process.resonance and not is_invisible(record, particle):
            return float(particle.m())
    raise ValueError(f"the hard process of {process.file_prefix} has no particle {process.resonance}")


def is_invisible(record: Any, particle: Any) -> bool:
    """Whether a particle of a hard process decays to neutrinos."""
    return record[particle.daughter1()].idAbs() in NEUTRINOS
