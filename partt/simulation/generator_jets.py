"""Jets of the generated particles, and which of them the simulated jets are.

Axes: J jets.
"""

from dataclasses import dataclass

import numpy as np

from partt.data.jagged import take_rows
from partt.simulation.generator import Events, Floats, Integers, visible
from partt.simulation.jet_finding import RADIUS, Clusters, FourMomenta, cluster, soft_drop_masses
from partt.simulation.truth_labels import wrap

MAX_MATCH_DISTANCE = RADIUS / 2


@dataclass(frozen=True, eq=False)
class GeneratorJets:
    """The generator-level jet of each simulated jet; NaN where there is none. GeV."""

    pt: Floats  # (J,)
    eta: Floats
    phi: Floats
    mass: Floats
    soft_drop_mass: Floats
    num_particles: Floats


def match_generator_jets(
    events: Events, jet_event: Integers, jet_eta: Floats, jet_phi: Floats, pt_min: float
) -> GeneratorJets:
    """Return, for each jet, the nearest jet of stable particles within 0.4 and above a pT.

    Neutrinos are left out; everything else is clustered as the candidates are.
    """
    used_events, jet_event = np.unique(jet_event, return_inverse=True)  # others need no clustering
    particles = visible(events)
    rows, offsets = take_rows(np.searchsorted(particles, events.offsets), used_events)
    momenta = _momenta(events, particles[rows])
    found = cluster(momenta, offsets, pt_min)
    nearest = _nearest(found, jet_event, jet_eta, jet_phi)
    matched = np.flatnonzero(nearest >= 0)
    jets = nearest[matched]

    def column(values: Floats) -> Floats:
        filled = np.full(len(jet_event), np.nan)
        filled[matched] = values
        return filled

    members, member_offsets = take_rows(found.offsets, jets)
    constituents = particles[rows][found.constituents[members]]
    return GeneratorJets(
        pt=column(found.pt[jets]),
        eta=column(found.eta[jets]),
        phi=column(found.phi[jets]),
        mass=column(found.mass[jets]),
        soft_drop_mass=column(soft_drop_masses(_momenta(events, constituents), member_offsets)),
        num_particles=column(np.diff(member_offsets).astype(np.float64)),
    )


def _momenta(events: Events, rows: Integers) -> FourMomenta:
    return events.px[rows], events.py[rows], events.pz[rows], events.energy[rows]


def _nearest(found: Clusters, jet_event: Integers, jet_eta: Floats, jet_phi: Floats) -> Integers:
    """Return the nearest of the found jets of the same event (J,); -1 if none is near."""
    distance = np.hypot(found.eta - jet_eta[:, None], wrap(found.phi - jet_phi[:, None]))  # (J, all)
    distance[found.event != jet_event[:, None]] = np.inf
    if not distance.size:
        return np.full(len(jet_event), -1)
    nearest = distance.argmin(axis=1)
    return np.where(distance.min(axis=1) < MAX_MATCH_DISTANCE, nearest, -1)
