"""Candidates or particles -> jets: anti-kT, soft drop and N-subjettiness with fastjet.

Axes: J jets, T candidates or particles of all events or jets together.
"""

from dataclasses import dataclass
from typing import TypeAlias

import awkward as ak
import fastjet
import fastjet._swig
import numpy as np

from partt.data.jagged import take_rows
from partt.simulation.detector.response import Candidates
from partt.simulation.generator import Floats, Integers

RADIUS = 0.8
ABS_ETA_MAX = 2.0
SOFT_DROP = {"beta": 0.0, "symmetry_cut": 0.1, "R0": RADIUS}
SUBJETTINESS = {
    "measure_definition": "NormalizedMeasure",
    "axes_definition": "OnePass_KT_Axes",
    "njets": [1, 2, 3, 4],
    "beta": 1.0,
    "R0": RADIUS,
}
WHOLE_JET = 1000.0  # a radius that contains every constituent

FourMomenta: TypeAlias = tuple[Floats, Floats, Floats, Floats]  # px, py, pz, energy (T,)

# No banner on stdout; docs/reference/simulation.md asks users to cite fastjet.
fastjet._swig.ClusterSequence.set_fastjet_banner_stream(None)  # noqa: SLF001


@dataclass(frozen=True, eq=False)
class Jets:
    """Jets, by event and decreasing pT; jet i has constituents[offsets[i]:offsets[i + 1]]."""

    event: Integers  # (J,)
    pt: Floats
    eta: Floats
    phi: Floats
    energy: Floats
    soft_drop_mass: Floats
    tau: Floats  # (J, 4)
    constituents: Integers  # (T,) rows of the candidates
    offsets: Integers  # (J + 1,)

    def __len__(self) -> int:
        """Return the number of jets."""
        return len(self.event)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Jets as fastjet finds them, event by event; jet i has constituents[offsets[i]:offsets[i + 1]]."""

    event: Integers  # (J,)
    pt: Floats
    eta: Floats
    phi: Floats
    energy: Floats
    mass: Floats
    constituents: Integers  # (T,) rows of the momenta
    offsets: Integers  # (J + 1,)


def find_jets(candidates: Candidates, num_events: int, pt_min: float, pt_max: float) -> Jets:
    """Cluster the candidates of each event and keep jets with pt_min < pT < pt_max and |eta| < 2."""
    offsets = np.searchsorted(candidates.event, np.arange(num_events + 1))
    found = cluster(_momenta(candidates), offsets, pt_min)
    kept = np.flatnonzero((found.pt > pt_min) & (found.pt < pt_max) & (np.abs(found.eta) < ABS_ETA_MAX))
    kept = kept[np.lexsort((-found.pt[kept], found.event[kept]))]
    rows, jet_offsets = take_rows(found.offsets, kept)
    constituents = found.constituents[rows]
    soft_drop_mass, tau = substructure(candidates.take(constituents), jet_offsets)
    return Jets(
        event=found.event[kept],
        pt=found.pt[kept],
        eta=found.eta[kept],
        phi=found.phi[kept],
        energy=found.energy[kept],
        soft_drop_mass=soft_drop_mass,
        tau=tau,
        constituents=constituents,
        offsets=jet_offsets,
    )


def cluster(momenta: FourMomenta, offsets: Integers, pt_min: float) -> Clusters:
    """Cluster the momenta of each event, with offsets (E + 1,), to anti-kT jets above a pT."""
    clusters = fastjet.ClusterSequence(
        _event_lists(momenta, offsets), fastjet.JetDefinition(fastjet.antikt_algorithm, RADIUS)
    )
    jets = clusters.inclusive_jets(min_pt=pt_min)
    members = clusters.constituent_index(min_pt=pt_min)
    event = np.repeat(np.arange(len(offsets) - 1), ak.to_numpy(ak.num(jets)))
    flat = ak.flatten(jets)
    px, py, pz, energy = (ak.to_numpy(flat[name]).astype(np.float64) for name in ("px", "py", "pz", "E"))
    pt = np.hypot(px, py)

    members = ak.flatten(members, axis=1)  # (J, var) rows within the event
    lengths = ak.to_numpy(ak.num(members)).astype(np.int64)
    first_of_event = np.repeat(offsets[event], lengths)
    return Clusters(
        event=event,
        pt=pt,
        eta=np.arcsinh(pz / np.where(pt > 0, pt, 1.0)),
        phi=np.arctan2(py, px),
        energy=energy,
        mass=np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0.0)),
        constituents=ak.to_numpy(ak.flatten(members)).astype(np.int64) + first_of_event,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
    )


def substructure(constituents: Candidates, offsets: Integers) -> tuple[Floats, Floats]:
    """Return the soft-drop mass (J,) and tau_1 ... tau_4 (J, 4) of jets."""
    if len(offsets) == 1:
        return np.empty(0), np.empty((0, 4))
    tree = _cambridge_tree(_momenta(constituents), offsets)
    tau = tree.njettiness(**SUBJETTINESS)
    return _soft_drop_mass(tree), ak.to_numpy(tau).astype(np.float64)


def soft_drop_masses(momenta: FourMomenta, offsets: Integers) -> Floats:
    """Return the soft-drop mass of jets with these constituents (J,)."""
    return np.empty(0) if len(offsets) == 1 else _soft_drop_mass(_cambridge_tree(momenta, offsets))


def _cambridge_tree(momenta: FourMomenta, offsets: Integers) -> fastjet.ClusterSequence:
    return fastjet.ClusterSequence(
        _event_lists(momenta, offsets), fastjet.JetDefinition(fastjet.cambridge_algorithm, WHOLE_JET)
    )


def _soft_drop_mass(tree: fastjet.ClusterSequence) -> Floats:
    groomed = tree.exclusive_jets_softdrop_grooming(njets=1, **SOFT_DROP)
    return np.asarray(ak.to_numpy(groomed.msoftdrop), dtype=np.float64)


def _momenta(candidates: Candidates) -> FourMomenta:
    return candidates.px, candidates.py, candidates.pz, candidates.energy


def _event_lists(momenta: FourMomenta, offsets: Integers) -> ak.Array:
    """Return momenta as fastjet needs them: one list for each event or jet."""
    records = ak.contents.RecordArray(
        [ak.contents.NumpyArray(values) for values in momenta],
        ["px", "py", "pz", "E"],
        parameters={"__record__": "Momentum4D"},
    )
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), records))
