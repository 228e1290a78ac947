"""Jets -> the branches of JetClass, by name, type and meaning."""

import numpy as np

from partt.data.jagged import Column, Jagged, Table
from partt.simulate.detector.response import Candidates, Kind
from partt.simulate.generator import Events, Floats, Integers
from partt.simulate.jet_finding import Jets
from partt.simulate.processes import LABELS, Process
from partt.simulate.truth_labels import Matches, directions

MAX_ABS_ETA = 5.0
MAX_ABS_PZ = 10_000.0

# The types of the real files.
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
    """Return the JetClass branches of the jets that match their label.

    Tracks are stored with pT, phi and mass of their momentum but with the eta of their end point;
    pz = pT sinh(eta) and the energy follow from it. part_deta = sign(jet_eta) (eta - jet_eta).
    Constituents by falling pT; those with |eta| > 5 or |pz| > 10 TeV are left out.
    """
    matched = np.flatnonzero(matches.code > 0)
    lengths = np.diff(jets.offsets)
    jet_of_part = np.repeat(np.arange(len(jets)), lengths)
    parts = candidates.take(jets.constituents)
    pt = np.hypot(parts.px, parts.py)
    pz = pt * np.sinh(parts.end_eta)

    # Number the matched jets anew; the order is (jet, -pT).
    position = np.full(len(jets), -1)
    position[matched] = np.arange(len(matched))
    kept = (position[jet_of_part] >= 0) & (np.abs(parts.end_eta) <= MAX_ABS_ETA) & (np.abs(pz) <= MAX_ABS_PZ)
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((-pt[rows], jet_of_part[rows]))]
    parts, pt, pz, jet = parts.take(rows), pt[rows], pz[rows], jet_of_part[rows]
    num_particles = np.bincount(position[jet], minlength=len(matched))
    offsets = np.concatenate([[0], np.cumsum(num_particles)])

    particle_branches = {
        "part_px": parts.px,
        "part_py": parts.py,
        "part_pz": pz,
        "part_energy": np.sqrt(pt**2 + pz**2 + parts.mass**2),
        "part_deta": np.where(jets.eta[jet] > 0, 1, -1) * (parts.end_eta - jets.eta[jet]),
        "part_dphi": _wrap(np.arctan2(parts.py, parts.px) - jets.phi[jet]),
        "part_d0val": parts.d0,
        "part_d0err": parts.d0_error,
        "part_dzval": parts.dz,
        "part_dzerr": parts.dz_error,
        "part_charge": parts.charge,
    }
    table: dict[str, Column] = {
        name: Jagged(values.astype(np.float32), offsets) for name, values in particle_branches.items()
    }
    for name, kind in KIND_BRANCHES.items():
        table[name] = Jagged((parts.kind == kind).astype(np.int32), offsets)
    for label in LABELS:
        kind_of_label = LABEL_TYPES.get(label, LABEL_TYPES.get(label[0]))
        table[f"label_{label}"] = np.full(len(matched), label == process.label, dtype=kind_of_label)
    jet_branches = {
        "jet_pt": jets.pt,
        "jet_eta": jets.eta,
        "jet_phi": jets.phi,
        "jet_energy": jets.energy,
        "jet_nparticles": None,
        "jet_sdmass": jets.soft_drop_mass,
        **{f"jet_tau{number + 1}": jets.tau[:, number] for number in range(4)},
    }
    for name, values in jet_branches.items():
        of_matched = num_particles if values is None else values[matched]
        table[name] = of_matched.astype(np.float32)
    table.update(_aux_branches(events, matches, matched))
    return table


def _aux_branches(events: Events, matches: Matches, matched: Integers) -> Table:
    """Direction, PDG code and pT of the resonance (0 for QCD), and the number of the decay."""
    row, code = matches.row[matched], matches.code[matched]
    found = row >= 0

    def of_resonance(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        column = np.zeros(len(row), dtype=np.float32)
        column[found] = values
        return column

    eta, phi = directions(events, row[found])
    return {
        "aux_genpart_eta": of_resonance(eta),
        "aux_genpart_phi": of_resonance(phi),
        "aux_genpart_pid": of_resonance(events.pid[row[found]].astype(np.float64)),
        "aux_genpart_pt": of_resonance(np.hypot(events.px[row[found]], events.py[row[found]])),
        "aux_truth_match": code.astype(np.float32),
    }


def _wrap(angle: Floats) -> Floats:
    """Bring angles into [-pi, pi)."""
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi
