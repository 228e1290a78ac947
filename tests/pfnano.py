"""Events as CMS PFNano has them: jets, candidates, and a table between them; with the slow way to read it."""

from pathlib import Path

import numpy as np

from partt.data.files.tables import write_table
from partt.data.jagged import Jagged, Table

PDG_IDS = {211: "ChargedHadron", 130: "NeutralHadron", 22: "Photon", 11: "Electron", 13: "Muon"}


def write_pfnano(path: Path, num_events: int = 20, seed: int = 0) -> Path:
    """Write events of 0 to 3 jets of 0 to 8 candidates, and candidates outside of jets; the table is unsorted."""
    random = np.random.default_rng(seed)
    events = []
    for _ in range(num_events):
        num_jets, num_candidates = int(random.integers(0, 4)), int(random.integers(8, 30))
        owners = [
            (jet, c) for jet in range(num_jets) for c in random.choice(num_candidates, random.integers(0, 9))
        ]
        events.append(
            (num_jets, num_candidates, random.permutation(np.array(owners, np.int32).reshape(-1, 2)))
        )
    jets, candidates = (np.cumsum([0, *(event[i] for event in events)]) for i in (0, 1))
    table = np.cumsum([0, *(len(event[2]) for event in events)])

    def values(offsets, low, high) -> Jagged:
        return Jagged(random.uniform(low, high, offsets[-1]).astype(np.float32), offsets)

    rows = np.concatenate([event[2] for event in events])
    pdg_ids = random.choice([*PDG_IDS, -211, -11], candidates[-1]).astype(np.int32)
    columns: Table = {
        "FatJet_pt": values(jets, 200, 900),
        "FatJet_eta": values(jets, -2, 2),
        "FatJet_phi": values(jets, -3, 3),
        "FatJet_mass": values(jets, 20, 200),
        "PFCands_pt": values(candidates, 0.5, 50),
        "PFCands_eta": values(candidates, -2, 2),
        "PFCands_phi": values(candidates, -3, 3),
        "PFCands_mass": values(candidates, 0, 0.2),
        "PFCands_charge": Jagged(random.integers(-1, 2, candidates[-1]).astype(np.int32), candidates),
        "PFCands_pdgId": Jagged(pdg_ids, candidates),
        **{f"PFCands_{name}": values(candidates, 0, 0.3) for name in ("d0", "d0Err", "dz", "dzErr")},
        "FatJetPFCands_jetIdx": Jagged(rows[:, 0], table),
        "FatJetPFCands_pFCandsIdx": Jagged(rows[:, 1], table),
    }
    write_table(path, columns, tree="Events")
    return path


def jets_one_by_one(columns: Table) -> list[dict[str, np.ndarray]]:
    """Return the branches of each jet, by loops."""
    jets = []

    def of_event(name, event):
        column = columns[name]
        return column.contents[column.offsets[event] : column.offsets[event + 1]].astype(np.float64)

    for event in range(len(columns["FatJet_pt"])):
        jet_index, index = (of_event(f"FatJetPFCands_{name}", event) for name in ("jetIdx", "pFCandsIdx"))
        for number, pt in enumerate(of_event("FatJet_pt", event)):
            eta, phi, mass = (of_event(f"FatJet_{name}", event)[number] for name in ("eta", "phi", "mass"))
            own = index[jet_index == number].astype(int)
            particles = {
                name.removeprefix("PFCands_"): of_event(name, event)[own]
                for name in columns
                if name.startswith("PFCands_")
            }
            px, py = (particles["pt"] * f(particles["phi"]) for f in (np.cos, np.sin))
            pz = particles["pt"] * np.sinh(particles["eta"])
            jet = {
                "part_px": px,
                "part_py": py,
                "part_pz": pz,
                "part_energy": np.sqrt(px**2 + py**2 + pz**2 + particles["mass"] ** 2),
                "part_deta": (particles["eta"] - eta) * (-1 if eta < 0 else 1),
                "part_dphi": np.angle(np.exp(1j * (particles["phi"] - phi))),
                "part_charge": particles["charge"],
                "part_d0val": 10 * particles["d0"],
                "part_d0err": 10 * particles["d0Err"],
                "part_dzval": 10 * particles["dz"],
                "part_dzerr": 10 * particles["dzErr"],
                "jet_pt": pt,
                "jet_energy": np.hypot(pt * np.cosh(eta), mass),
            }
            kinds = np.abs(particles["pdgId"])
            jets.append(jet | {f"part_is{name}": kinds == code for code, name in PDG_IDS.items()})
    return jets
