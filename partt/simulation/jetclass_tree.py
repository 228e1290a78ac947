"""Jets -> the branches of JetClass, with its names, types and definitions."""

import numpy as np

from partt.data.jagged import Jagged, Table, take_rows
from partt.simulation.detector.response import Candidates, Kind
from partt.simulation.generator import Events, Floats, Integers
from partt.simulation.jet_finding import Jets
from partt.simulation.processes import LABELS, Process
from partt.simulation.truth_labels import Matches, directions, wrap

MAX_ABS_ETA = 5.0
MAX_ABS_PZ = 10_000.0

# Types as in the JetClass files.
LABEL_TYPES = {"QCD": np.float32, "H": np.bool_, "Z": np.int32, "W": np.int32, "T": np.int32}

KIND_BRANCHES = {
    "part_isChargedHadron": Kind.CHARGED_HADRON,
    "part_isNeutralHadron": Kind.NEUTRAL_HADRON,
    "part_isPhoton": Kind.PHOTON,
    "part_isElectron": Kind.ELECTRON,
    "part_isMuon": Kind.MUON,
}


def jet_table(
    events: Events, candidates: Candidates, jets: Jets, matches: Matches, process: Process
) -> Table:
    """Return the JetClass branches of the jets that match their class."""
    matched = np.flatnonzero(matches.code > 0)
    particle_branches, num_particles = _particle_branches(candidates, jets, matched)
    labels = {
        f"label_{label}": np.full(
            len(matched), label == process.label, dtype=LABEL_TYPES.get(label, LABEL_TYPES.get(label[0]))
        )
        for label in LABELS
    }
    jet_branches = {
        "jet_pt": jets.pt[matched],
        "jet_eta": jets.eta[matched],
        "jet_phi": jets.phi[matched],
        "jet_energy": jets.energy[matched],
        "jet_nparticles": num_particles,
        "jet_sdmass": jets.soft_drop_mass[matched],
        **{f"jet_tau{number + 1}": jets.tau[matched, number] for number in range(4)},
        **_aux_branches(events, matches.row[matched], matches.code[matched]),
    }
    return {
        **particle_branches,
        **labels,
        **{name: values.astype(np.float32) for name, values in jet_branches.items()},
    }


def jet_constituents(
    candidates: Candidates, jets: Jets, matched: Integers
) -> tuple[Candidates, Integers, Integers]:
    """Return the constituents of the matched jets, the number of each one's jet, and the jets' offsets.

    Constituents are sorted by decreasing pT; those with |eta| > 5 or |pz| > 10 TeV are left out.
    """
    rows, offsets = take_rows(jets.offsets, matched)
    jet = np.repeat(np.arange(len(matched)), np.diff(offsets))
    parts = candidates.take(jets.constituents[rows])
    pt = np.hypot(parts.px, parts.py)
    order = np.lexsort((-pt, jet))
    pz = pt * np.sinh(parts.end_eta)
    order = order[((np.abs(parts.end_eta) <= MAX_ABS_ETA) & (np.abs(pz) <= MAX_ABS_PZ))[order]]
    jet = jet[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(jet, minlength=len(matched)))])
    return parts.take(order), jet, offsets


def _particle_branches(
    candidates: Candidates, jets: Jets, matched: Integers
) -> tuple[dict[str, Jagged], Integers]:
    """Return the branches of the constituents of the matched jets, and the number of constituents.

    As in JetClass, tracks have the pT, phi and mass of their momentum, but the eta of their end point, from
    which pz = pT sinh(eta) and the energy follow. part_deta = sign(jet_eta) (eta - jet_eta).
    """
    parts, jet, offsets = jet_constituents(candidates, jets, matched)
    pt = np.hypot(parts.px, parts.py)
    pz = pt * np.sinh(parts.end_eta)
    jet_eta, jet_phi = jets.eta[matched][jet], jets.phi[matched][jet]
    floats = {
        "part_px": parts.px,
        "part_py": parts.py,
        "part_pz": pz,
        "part_energy": np.sqrt(pt**2 + pz**2 + parts.mass**2),
        "part_deta": signed_deta(parts.end_eta, jet_eta),
        "part_dphi": wrap(np.arctan2(parts.py, parts.px) - jet_phi),
        "part_d0val": parts.d0,
        "part_d0err": parts.d0_error,
        "part_dzval": parts.dz,
        "part_dzerr": parts.dz_error,
        "part_charge": parts.charge,
    }
    branches = {name: Jagged(values.astype(np.float32), offsets) for name, values in floats.items()}
    flags = {
        name: Jagged((parts.kind == kind).astype(np.int32), offsets) for name, kind in KIND_BRANCHES.items()
    }
    return branches | flags, np.diff(offsets)


def signed_deta(eta: Floats, jet_eta: Floats) -> Floats:
    """Return the distance in eta from the jet axis, positive away from the centre of the detector."""
    return np.where(jet_eta > 0, 1, -1) * (eta - jet_eta)


def _aux_branches(events: Events, row: Integers, code: Integers) -> dict[str, Floats]:
    """Return direction, PDG code and pT of the resonances (0 for QCD), and the truth codes."""
    found = row >= 0

    def of_resonance(values: Floats) -> Floats:
        column = np.zeros(len(row))
        column[found] = values
        return column

    eta, phi = directions(events, row[found])
    return {
        "aux_genpart_eta": of_resonance(eta),
        "aux_genpart_phi": of_resonance(phi),
        "aux_genpart_pid": of_resonance(events.pid[row[found]].astype(np.float64)),
        "aux_genpart_pt": of_resonance(np.hypot(events.px[row[found]], events.py[row[found]])),
        "aux_truth_match": code.astype(np.float64),
    }
