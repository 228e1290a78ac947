"""Which events go on to most of the shower: those that can still give a wanted jet.

Hard processes are generated well below the lowest jet pT, because radiation and the detector move jets across
the threshold; most of the events then have no wanted jet. After the first, hard emissions the jet's pT and
direction are almost fixed, while 98 % of the work (softer emissions, further interactions, hadrons) is ahead.

Axes: V visible objects, four-vectors (px, py, pz, E) in GeV.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from partt.simulation.hard_process import FlatMasses, HardProcessVeto, is_invisible
from partt.simulation.processes import NEUTRINOS, Process

Floats = npt.NDArray[np.float64]

VETO_SCALE = 20.0  # GeV: emissions down to this scale have been made
IN_A_DECAY = 5  # Pythia asks again in the shower of each resonance
MAX_VETOES_IN_A_ROW = 2000  # then an event passes, so that a job without jets notices and ends
RADIUS = 0.8  # of the jets
# How far the jet may still move: benchmarks/bench_simulate.py measures what is lost.
PT_MARGIN = 0.86  # x the lowest jet pT
DECAY_PT_MARGIN = 0.91  # the same for resonances, whose decays only lose pT
ETA_MARGIN = 0.2
DISTANCE_MARGIN = 0.3  # of a decay product from the jet axis
LOWEST_SEED = 0.2  # x the lowest jet pT: partons that can be the axis of a jet


@dataclass(frozen=True)
class JetWindow:
    """Where wanted jets are; a highest pT would veto hardly any event."""

    pt_min: float  # GeV
    max_abs_eta: float


@dataclass(frozen=True, eq=False)
class Estimate:
    """A jet as it looks early in the shower."""

    pt: float
    eta: float
    distance: float  # of the farthest decay product from the axis; 0 for QCD


class EarlyVeto(HardProcessVeto):
    """Vetoes hard processes as its base does, and showers that cannot give a jet in the window."""

    def __init__(self, process: Process, window: JetWindow, flat_masses: FlatMasses | None = None) -> None:
        super().__init__(process, flat_masses)
        self.window = window
        self._resonances: list[tuple[Floats, Floats]] = []  # momentum (4,), visible products (V, 4)
        self._vetoes_in_a_row = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to veto."""
        return True

    def doVetoProcessLevel(self, record: Any) -> bool:  # noqa: N802
        """Whether to drop an event with this hard process; remember its decays."""
        if super().doVetoProcessLevel(record):
            return True
        self._resonances = decays(record, self.process)
        return False

    def canVetoPT(self) -> bool:  # noqa: N802
        """Ask Pythia to call doVetoPT."""
        return True

    def scaleVetoPT(self) -> float:  # noqa: N802
        """Return the scale of the shower at which Pythia calls doVetoPT."""
        return VETO_SCALE

    def doVetoPT(self, position: int, event: Any) -> bool:  # noqa: N802
        """Whether to drop an event that has been showered down to the scale."""
        if position == IN_A_DECAY:
            return False
        hopeless = not any(
            self.is_possible(jet) for jet in estimates(event, self.process, self._resonances, self.window)
        )
        self._vetoes_in_a_row = self._vetoes_in_a_row + 1 if hopeless else 0
        return hopeless and self._vetoes_in_a_row % MAX_VETOES_IN_A_ROW > 0

    def is_possible(self, jet: Estimate) -> bool:
        """Whether this can become a wanted jet."""
        margin = DECAY_PT_MARGIN if self.process.resonance else PT_MARGIN
        return (
            jet.pt > margin * self.window.pt_min
            and abs(jet.eta) < self.window.max_abs_eta + ETA_MARGIN
            and jet.distance < RADIUS + DISTANCE_MARGIN
        )


def decays(record: Any, process: Process) -> list[tuple[Floats, Floats]]:
    """Return momentum and visible decay products of each resonance of a hard process that can make a jet."""
    found = []
    for particle in record:
        if particle.idAbs() == process.resonance and not is_invisible(record, particle):
            products = _final_products(record, particle)
            if products:
                found.append((_momentum(particle), np.array(products)))
    return found


def _final_products(record: Any, particle: Any) -> list[Floats]:
    """Return the momenta of what a particle of a hard process decays to in the end, without neutrinos."""
    daughters = particle.daughterList()
    if not daughters:
        return [] if particle.idAbs() in NEUTRINOS else [_momentum(particle)]
    return [momentum for row in daughters for momentum in _final_products(record, record[row])]


def _momentum(particle: Any) -> Floats:
    return np.array([particle.px(), particle.py(), particle.pz(), particle.e()])


def estimates(
    event: Any, process: Process, resonances: list[tuple[Floats, Floats]], window: JetWindow
) -> list[Estimate]:
    """Return the jets that a partly showered event may give, resonances being undecayed in it."""
    partons, recoiled = [], []
    for particle in event:
        if not particle.isFinal():
            continue
        if process.resonance and particle.idAbs() == process.resonance:
            recoiled.append(_momentum(particle))
        elif particle.isParton():
            partons.append(_momentum(particle))
    products = [boosted(decay, before, after) for (before, decay), after in _paired(resonances, recoiled)]
    visible = np.array([*partons, *(row for decay in products for row in decay)]).reshape(-1, 4)
    if process.resonance:
        return [_estimate(decay.sum(axis=0), visible, decay) for decay in products]
    seeds = visible[np.hypot(visible[:, 0], visible[:, 1]) > LOWEST_SEED * window.pt_min]
    return [_estimate(seed, visible, seed[None]) for seed in seeds]


def _paired(
    resonances: list[tuple[Floats, Floats]], recoiled: list[Floats]
) -> list[tuple[tuple[Floats, Floats], Floats]]:
    """Pair resonances of the hard process with those of the shower: emissions leave the mass as it is."""
    return [
        (resonance, min(recoiled, key=lambda momentum: abs(_mass2(momentum) - _mass2(resonance[0]))))
        for resonance in resonances
        if recoiled
    ]


def _mass2(momentum: Floats) -> float:
    return float(momentum[3] ** 2 - momentum[:3] @ momentum[:3])


def boosted(momenta: Floats, before: Floats, after: Floats) -> Floats:
    """Return decay products (V, 4) of a particle that recoiled: to its old rest frame, and out of the new."""
    return _boost(_boost(momenta, -before[:3] / before[3]), after[:3] / after[3])


def _boost(momenta: Floats, velocity: Floats) -> Floats:
    speed2 = float(velocity @ velocity)
    if speed2 == 0:
        return momenta
    gamma = 1 / np.sqrt(1 - speed2)
    along = momenta[:, :3] @ velocity
    factor = (gamma - 1) * along / speed2 + gamma * momenta[:, 3]
    return np.column_stack([momenta[:, :3] + factor[:, None] * velocity, gamma * (momenta[:, 3] + along)])


def _estimate(axis: Floats, visible: Floats, products: Floats) -> Estimate:
    near = visible[_distances(visible, axis) < RADIUS].sum(axis=0)
    return Estimate(
        pt=float(np.hypot(near[0], near[1])),
        eta=float(_eta(axis)),
        distance=float(_distances(products, axis).max()),
    )


def _eta(momenta: Floats) -> Floats:
    eta: Floats = np.arcsinh(momenta[..., 2] / np.maximum(np.hypot(momenta[..., 0], momenta[..., 1]), 1e-9))
    return eta


def _distances(momenta: Floats, axis: Floats) -> Floats:
    """Return the distances (V,) of momenta from an axis in eta and phi."""
    dphi = np.arctan2(momenta[:, 1], momenta[:, 0]) - np.arctan2(axis[1], axis[0])
    distances: Floats = np.hypot(_eta(momenta) - _eta(axis), (dphi + np.pi) % (2 * np.pi) - np.pi)
    return distances
