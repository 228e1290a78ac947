"""Stable particles -> energy-flow candidates: the response of the detector.

Axes: P stable particles, K tracks, T candidates.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self

import numpy as np
from particle import pdgid

from partt.data.jagged import Array
from partt.simulation.card import Calorimeter, Detector
from partt.simulation.detector.calorimeter import (
    CellGrid,
    EnergyFlow,
    build_grid,
    energy_flow,
    energy_shares,
)
from partt.simulation.detector.propagation import propagate
from partt.simulation.detector.tracking import efficiency, impact_parameter_widths
from partt.simulation.generator import Events, Floats, Integers, visible


class Kind(IntEnum):
    """Reconstructed kind of a candidate."""

    CHARGED_HADRON = 0
    NEUTRAL_HADRON = 1
    PHOTON = 2
    ELECTRON = 3
    MUON = 4


@dataclass(frozen=True, eq=False)
class _Columns:
    """Arrays with one row for each particle."""

    def take(self, rows: Array) -> Self:
        """Return the given rows, in the given order."""
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, eq=False)
class Candidates(_Columns):
    """Energy-flow candidates, ordered by event; GeV and mm."""

    event: Integers  # (T,)
    px: Floats
    py: Floats
    pz: Floats
    energy: Floats
    mass: Floats
    end_eta: Floats  # of the point where a track leaves the tracker; of the momentum for neutral candidates
    d0: Floats
    d0_error: Floats
    dz: Floats
    dz_error: Floats
    charge: Floats
    kind: Integers
    particle: Integers  # row of the events; -1 for neutral candidates, which may be several particles
    d0_shift: Floats  # measured - true
    dz_shift: Floats

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.event)


@dataclass(frozen=True, eq=False)
class Stable(_Columns):
    """Stable particles in the detector, with their momenta at the point of closest approach."""

    event: Integers  # (P,)
    particle: Integers  # row of the events
    pid: Integers
    charge: Floats
    pt: Floats
    phi: Floats
    pz: Floats
    energy: Floats
    mass: Floats
    end_eta: Floats
    end_phi: Floats
    d0: Floats
    dz: Floats


class DetectorModel:
    """A detector with its cells laid out."""

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self.ecal_grid: CellGrid = build_grid(detector.card.ecal)
        self.hcal_grid: CellGrid = build_grid(detector.card.hcal)

    def respond(self, events: Events, random: np.random.Generator) -> Candidates:
        """Simulate the detector for a batch of events."""
        card = self.detector.card
        stable = self._stable_particles(events)
        tracks = self._tracks(stable, random)
        d0_error, dz_error = impact_parameter_widths(
            self.detector.impact_parameters, np.abs(np.arcsinh(tracks.pz / tracks.pt)), tracks.pt
        )
        d0_shift = d0_error * random.standard_normal(len(tracks.d0))
        dz_shift = dz_error * random.standard_normal(len(tracks.dz))

        photons = _flow(card.ecal, self.ecal_grid, stable, tracks, random)
        tracks = _scale(tracks, photons.track_scale)
        neutral_hadrons = _flow(card.hcal, self.hcal_grid, stable, tracks, random)
        tracks = _scale(tracks, neutral_hadrons.track_scale)

        charged = Candidates(
            event=tracks.event,
            px=tracks.pt * np.cos(tracks.phi),
            py=tracks.pt * np.sin(tracks.phi),
            pz=tracks.pz,
            energy=tracks.energy,
            mass=tracks.mass,
            end_eta=tracks.end_eta,
            d0=tracks.d0 + d0_shift,
            d0_error=d0_error,
            dz=tracks.dz + dz_shift,
            dz_error=dz_error,
            charge=tracks.charge,
            kind=_track_kind(tracks.pid),
            particle=tracks.particle,
            d0_shift=d0_shift,
            dz_shift=dz_shift,
        ).take(tracks.pt > 0)
        return _merge(charged, _neutral(photons, Kind.PHOTON), _neutral(neutral_hadrons, Kind.NEUTRAL_HADRON))

    def _stable_particles(self, events: Events) -> Stable:
        rows = visible(events)
        pid = events.pid[rows]
        charge = charges(pid)
        px, py, pz = events.px[rows], events.py[rows], events.pz[rows]
        vertex = np.stack([events.x[rows], events.y[rows], events.z[rows]])
        trajectories = propagate(self.detector.card.solenoid, charge, vertex, np.stack([px, py, pz]))
        return Stable(
            event=events.event[rows],
            particle=rows,
            pid=pid,
            charge=charge,
            pt=np.hypot(px, py),
            phi=trajectories.direction,
            pz=pz,
            energy=events.energy[rows],
            mass=events.mass[rows],
            end_eta=trajectories.end_eta,
            end_phi=trajectories.end_phi,
            d0=trajectories.d0,
            dz=trajectories.dz,
        ).take(np.flatnonzero(trajectories.reaches_detector))

    def _tracks(self, stable: Stable, random: np.random.Generator) -> Stable:
        """Return the charged particles whose tracks are found."""
        charged = stable.take(np.flatnonzero(stable.charge != 0))
        tracking = self.detector.card.tracking
        probability = np.zeros_like(charged.pt)
        kind = _track_kind(charged.pid)
        for regions, this_kind in (
            (tracking.charged_hadron, Kind.CHARGED_HADRON),
            (tracking.electron, Kind.ELECTRON),
            (tracking.muon, Kind.MUON),
        ):
            of_kind = kind == this_kind
            probability[of_kind] = efficiency(regions, np.abs(charged.end_eta[of_kind]), charged.pt[of_kind])
        return charged.take(np.flatnonzero(random.random(len(probability)) < probability))


def charges(pid: Integers) -> Floats:
    """Return the charges of particles by PDG code, in units of the proton charge."""
    codes, row = np.unique(pid, return_inverse=True)
    return np.array([pdgid.charge(int(code)) or 0.0 for code in codes], dtype=np.float64)[row]


def _track_kind(pid: Integers) -> Integers:
    code = np.abs(pid)
    return np.where(code == 11, Kind.ELECTRON, np.where(code == 13, Kind.MUON, Kind.CHARGED_HADRON))


def _flow(
    calorimeter: Calorimeter, grid: CellGrid, stable: Stable, tracks: Stable, random: np.random.Generator
) -> EnergyFlow:
    """Return the energy flow of a calorimeter, from the deposits of all particles and from the tracks."""
    deposits = _pointing(stable, energy_shares(calorimeter, stable.pid))
    pointing_tracks = _pointing(tracks, energy_shares(calorimeter, tracks.pid))
    return energy_flow(calorimeter, grid, deposits, pointing_tracks, random)


def _pointing(particles: Stable, share: Floats) -> tuple[Integers, Floats, Floats, Floats]:
    """Return event, eta, phi and energy of the deposits of particles."""
    return particles.event, particles.end_eta, particles.end_phi, particles.energy * share


def _scale(tracks: Stable, factor: Floats) -> Stable:
    """Multiply the momenta by a factor, keeping directions and masses."""
    pt, pz = tracks.pt * factor, tracks.pz * factor
    energy = np.where(factor == 1, tracks.energy, np.sqrt(pt**2 + pz**2 + tracks.mass**2))
    values = {field.name: getattr(tracks, field.name) for field in fields(tracks)}
    return Stable(**{**values, "pt": pt, "pz": pz, "energy": energy})


def _neutral(flow: EnergyFlow, kind: Kind) -> Candidates:
    pt = flow.neutral_energy / np.cosh(flow.neutral_eta)
    zero = np.zeros_like(pt)
    return Candidates(
        event=flow.neutral_event,
        px=pt * np.cos(flow.neutral_phi),
        py=pt * np.sin(flow.neutral_phi),
        pz=pt * np.sinh(flow.neutral_eta),
        energy=flow.neutral_energy,
        mass=zero,
        end_eta=flow.neutral_eta,
        d0=zero,
        d0_error=zero,
        dz=zero,
        dz_error=zero,
        charge=zero,
        kind=np.full(len(pt), kind, dtype=np.int64),
        particle=np.full(len(pt), -1),
        d0_shift=zero,
        dz_shift=zero,
    )


def _merge(*parts: Candidates) -> Candidates:
    names = [field.name for field in fields(Candidates)]
    merged = Candidates(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
    return merged.take(np.argsort(merged.event, kind="stable"))
