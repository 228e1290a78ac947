"""Candidates -> jets: anti-kT, soft drop and N-subjettiness with fastjet.

Axes: J jets, T candidates of all jets together.
"""

from dataclasses import dataclass

import awkward as ak
import fastjet
import fastjet._swig
import numpy as np

from partt.data.jagged import Array
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


def find_jets(candidates: Candidates, num_events: int, pt_min: float, pt_max: float) -> Jets:
    """Cluster the candidates of each event and keep jets with pt_min < pT < pt_max and |eta| < 2."""
    offsets = np.searchsorted(candidates.event, np.arange(num_events + 1))
    clusters = fastjet.ClusterSequence(
        _four_momenta(candidates, offsets), fastjet.JetDefinition(fastjet.antikt_algorithm, RADIUS)
    )
    jets = clusters.inclusive_jets(min_pt=pt_min)
    members = clusters.constituent_index(min_pt=pt_min)
    event = np.repeat(np.arange(num_events), ak.to_numpy(ak.num(jets)))
    flat = ak.flatten(jets)
    px, py, pz, energy = (ak.to_numpy(flat[name]).astype(np.float64) for name in ("px", "py", "pz", "E"))
    pt = np.hypot(px, py)
    eta = np.arcsinh(pz / np.where(pt > 0, pt, 1.0))

    kept = np.flatnonzero((pt > pt_min) & (pt < pt_max) & (np.abs(eta) < ABS_ETA_MAX))
    kept = kept[np.lexsort((-pt[kept], event[kept]))]
    members = ak.flatten(members, axis=1)[kept]  # (J, var) rows within the event
    lengths = ak.to_numpy(ak.num(members)).astype(np.int64)
    jet_offsets = np.concatenate([[0], np.cumsum(lengths)])
    first_of_event = np.repeat(offsets[event[kept]], lengths)
    constituents = ak.to_numpy(ak.flatten(members)).astype(np.int64) + first_of_event
    soft_drop_mass, tau = substructure(candidates.take(constituents), jet_offsets)
    return Jets(
        event=event[kept],
        pt=pt[kept],
        eta=eta[kept],
        phi=np.arctan2(py, px)[kept],
        energy=energy[kept],
        soft_drop_mass=soft_drop_mass,
        tau=tau,
        constituents=constituents,
        offsets=jet_offsets,
    )


def substructure(constituents: Candidates, offsets: Integers) -> tuple[Floats, Floats]:
    """Return the soft-drop mass (J,) and tau_1 ... tau_4 (J, 4) of jets."""
    if len(offsets) == 1:
        return np.empty(0), np.empty((0, 4))
    tree = fastjet.ClusterSequence(
        _four_momenta(constituents, offsets), fastjet.JetDefinition(fastjet.cambridge_algorithm, WHOLE_JET)
    )
    groomed = tree.exclusive_jets_softdrop_grooming(njets=1, **SOFT_DROP)
    tau = tree.njettiness(**SUBJETTINESS)
    return ak.to_numpy(groomed.msoftdrop).astype(np.float64), ak.to_numpy(tau).astype(np.float64)


def _four_momenta(candidates: Candidates, offsets: Array) -> ak.Array:
    """Return the momenta of candidates as fastjet needs them: one list for each event or jet."""
    momenta = ak.contents.RecordArray(
        [
            ak.contents.NumpyArray(values)
            for values in (candidates.px, candidates.py, candidates.pz, candidates.energy)
        ],
        ["px", "py", "pz", "E"],
        parameters={"__record__": "Momentum4D"},
    )
    return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(offsets), momenta))
