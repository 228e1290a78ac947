"""Pythia 8 -> events in flat arrays.

Axes: E events, P particles of all events together.
"""

from dataclasses import dataclass

import awkward as ak
import numpy as np
import numpy.typing as npt
import pythia8mc

from partt.errors import NumericalError
from partt.simulation.early_veto import EarlyVeto, JetWindow
from partt.simulation.hard_process import FlatMasses, HardProcessVeto, resonance_mass
from partt.simulation.processes import COMMON_SETTINGS, NEUTRINOS, Process

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MAX_SEED = 900_000_000  # of Pythia
PILOT_EVENTS = 8000


@dataclass(frozen=True, eq=False)
class Events:
    """Generated particles, decayed ones included: event i has rows offsets[i]:offsets[i + 1]. GeV and mm."""

    offsets: Integers  # (E + 1,)
    pid: Integers  # (P,) PDG codes
    status: Integers  # (P,) positive for stable particles
    mother: Integers  # (P,) row in these arrays, the first of several; -1 without
    first_daughter: Integers  # (P,) row in these arrays; -1 without daughters
    last_daughter: Integers  # (P,)
    px: Floats
    py: Floats
    pz: Floats
    energy: Floats
    mass: Floats
    x: Floats  # production vertex
    y: Floats
    z: Floats

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.offsets) - 1

    @property
    def event(self) -> Integers:
        """Event number of each particle (P,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def visible(events: Events) -> Integers:
    """Return the rows of the stable particles other than neutrinos."""
    return np.flatnonzero((events.status > 0) & ~np.isin(np.abs(events.pid), NEUTRINOS))


class Generator:
    """Pythia, set up for one process; the same seed gives the same events.

    `hard_pt_min` (GeV) is the lowest pT of the hard process: low enough not to shape the jet spectrum. With
    `wanted`, events that cannot give such a jet are left out.
    """

    def __init__(
        self, process: Process, seed: int, hard_pt_min: float, wanted: JetWindow | None = None
    ) -> None:
        flat_masses = None
        if process.mass_range is not None:
            flat_masses = FlatMasses(_pilot_masses(process, hard_pt_min), process.mass_range, seed)
        self._veto = (  # Pythia does not keep it alive
            EarlyVeto(process, wanted, flat_masses) if wanted else HardProcessVeto(process, flat_masses)
        )
        self._pythia = start_pythia(process, seed, hard_pt_min, self._veto)

    def next_events(self, num_events: int) -> Events:
        """Generate events; those that fail in Pythia are left out."""
        return from_pythia(self._pythia.nextBatch(num_events))

    def skip_events(self, num_events: int) -> None:
        """Generate and discard events: Pythia alone, for benchmarks."""
        for _ in range(num_events):
            self._pythia.next()


def start_pythia(
    process: Process, seed: int, hard_pt_min: float, veto: HardProcessVeto, *more_settings: str
) -> pythia8mc.Pythia:
    """Return Pythia, initialised; the caller keeps the veto alive."""
    pythia = pythia8mc.Pythia("", False)  # no banner
    settings = (
        "Print:quiet = on",
        "Random:setSeed = on",
        f"Random:seed = {1 + seed % MAX_SEED}",
        f"PhaseSpace:pTHatMin = {hard_pt_min!r}",
        *COMMON_SETTINGS,
        *process.settings,
        *more_settings,
    )
    for setting in settings:
        if not pythia.readString(setting):
            raise ValueError(f"Pythia rejects the setting {setting!r}")
    if veto.is_needed:
        pythia.setUserHooksPtr(veto)
    if not pythia.init():
        raise NumericalError(f"Pythia could not start the process {process.file_prefix}")
    return pythia


def _pilot_masses(process: Process, hard_pt_min: float) -> Floats:
    """Return the masses of the resonance in hard processes alone, always the same ones."""
    veto = HardProcessVeto(process)
    pythia = start_pythia(process, 0, hard_pt_min, veto, "PartonLevel:all = off")
    masses = [resonance_mass(pythia.process, process) for _ in range(PILOT_EVENTS) if pythia.next()]
    return np.array(masses)


def from_pythia(batch: ak.Array) -> Events:
    """Flatten the awkward array that Pythia's nextBatch returns."""
    particles = ak.to_layout(batch.prt)
    offsets = np.asarray(particles.offsets, dtype=np.int64)
    fields = particles.content[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    shift = np.repeat(offsets[:-1], np.diff(offsets))

    def row(name: str) -> Integers:
        index = np.asarray(fields[name].data, dtype=np.int64)
        return np.where(index > 0, index + shift, -1)

    momentum, vertex = fields["p"], fields["vProd"]
    vertex_index = np.asarray(vertex.index)

    def position(name: str) -> Floats:
        values = np.append(np.asarray(vertex.content[name].data), 0.0)  # index -1: the origin
        return np.asarray(values[vertex_index], dtype=np.float64)

    first = row("daughter1")
    last = row("daughter2")
    return Events(
        offsets=offsets,
        pid=np.asarray(fields["id"].data, dtype=np.int64),
        status=np.asarray(fields["status"].data, dtype=np.int64),
        mother=row("mother1"),
        first_daughter=first,
        last_daughter=np.where(last < 0, first, last),
        px=np.asarray(momentum["px"].data),
        py=np.asarray(momentum["py"].data),
        pz=np.asarray(momentum["pz"].data),
        energy=np.asarray(momentum["e"].data),
        mass=np.asarray(fields["m"].data),
        x=position("px"),
        y=position("py"),
        z=position("pz"),
    )
