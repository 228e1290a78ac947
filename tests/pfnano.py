"""Events as CMS PFNano has them: jets, candidates, a table between them, a second tree; with the slow way to read it."""

from pathlib import Path

import awkward as ak
import numpy as np
import uproot

PDG_IDS = {211: "ChargedHadron", 130: "NeutralHadron", 22: "Photon", 11: "Electron", 13: "Muon"}
NO_TRACK = -1  # d0, dz and their errors of neutral and of soft charged candidates


def make_pfnano(num_events: int = 20, seed: int = 0) -> dict[str, ak.Array]:
    """Return events of 0 to 3 jets of 0 to 8 candidates, and candidates outside of jets; the table is unsorted."""
    random = np.random.default_rng(seed)
    num_jets, num_candidates = random.integers(0, 4, num_events), random.integers(8, 30, num_events)
    rows = [
        random.permutation(
            [
                (jet, c)
                for jet in range(jets)
                for c in random.choice(all_of_them, random.integers(0, 9), replace=False)
            ]
        ).reshape(-1, 2)
        for jets, all_of_them in zip(num_jets, num_candidates, strict=True)
    ]

    def values(numbers, low, high):
        return ak.unflatten(random.uniform(low, high, numbers.sum()).astype(np.float32), numbers)

    total = num_candidates.sum()
    pdg_id = random.choice([211, -211, 130, 22, 11, 13, 1, 2], total)
    is_charged = np.isin(np.abs(pdg_id), [211, 11, 13])
    pt = random.uniform(0.5, 50, total)
    has_track = is_charged & (pt > 5)

    def track(low, high):
        measured = random.uniform(low, high, total)
        return ak.unflatten(np.where(has_track, measured, NO_TRACK).astype(np.float32), num_candidates)

    counts = np.array([len(part) for part in rows])
    weight = random.choice([0, 0.25, 1], total, p=[0.1, 0.3, 0.6])
    jets = {name: values(num_jets, low, high) for name, low, high in [
        ("pt", 500, 900), ("eta", -2, 2), ("phi", -3, 3), ("mass", 20, 200), ("rawFactor", 0.01, 0.1),
        ("msoftdrop", 5, 150), *((f"tau{number}", 0, 1) for number in range(1, 5)),
    ]}  # fmt: skip
    jets["nBHadrons"] = ak.unflatten(random.integers(0, 2, num_jets.sum()).astype(np.uint8), num_jets)
    candidates = {
        "pt": ak.unflatten(pt.astype(np.float32), num_candidates),
        "eta": values(num_candidates, -2, 2),
        "phi": values(num_candidates, -3, 3),
        "mass": values(num_candidates, 0, 0.2),
        "charge": ak.unflatten(np.where(is_charged, np.sign(pdg_id), 0).astype(np.int32), num_candidates),
        "pdgId": ak.unflatten(pdg_id.astype(np.int32), num_candidates),
        "puppiWeight": ak.unflatten(weight.astype(np.float32), num_candidates),
        "d0": track(-0.1, 0.1),
        "d0Err": track(0.001, 0.03),
        "dz": track(-0.1, 0.1),
        "dzErr": track(0.001, 0.03),
    }
    joined = np.concatenate(rows).astype(np.int32)
    table = {
        "jetIdx": ak.unflatten(joined[:, 0], counts),
        "pFCandsIdx": ak.unflatten(joined[:, 1], counts),
    }
    return {
        "run": np.full(num_events, 1, dtype=np.uint32),
        "luminosityBlock": np.arange(num_events, dtype=np.uint32),
        "event": 100 + np.arange(num_events, dtype=np.uint64),
        "FatJet": ak.zip(jets),
        "PFCands": ak.zip(candidates),
        "FatJetPFCands": ak.zip(table),
        "Muon": ak.zip({"pt": values(num_jets + 1, 5, 50)}),
    }


def write_pfnano(path: Path, num_events: int = 20, seed: int = 0) -> Path:
    """Write such events as NanoAOD does: branches FatJet_pt, counters nFatJet, the tree Runs beside Events."""
    events = make_pfnano(num_events, seed)
    with uproot.recreate(path) as file:
        file.mktree("Runs", {"run": np.array([1], dtype=np.uint32)})
        file.mktree(
            "Events",
            events,
            counter_name=lambda name: f"n{name}",
            field_name=lambda a, b: f"{a}_{b}" if a else b,
        )
    return path


def jets_one_by_one(events: dict[str, ak.Array]) -> list[dict[str, object]]:
    """Return the branches of JetClass of each jet, by loops."""
    found = []
    for number in range(len(events["run"])):
        table = events["FatJetPFCands"][number]
        for position, jet in enumerate(events["FatJet"][number]):
            raw = 1 - jet.rawFactor
            rows = [row.pFCandsIdx for row in table if row.jetIdx == position]
            own = [events["PFCands"][number][row] for row in rows]
            own = sorted((c for c in own if c.puppiWeight > 0), key=lambda c: -c.pt * c.puppiWeight)
            particles: list[dict[str, float]] = []
            for c in own:
                pt, mass = c.pt * c.puppiWeight, c.mass * c.puppiWeight
                has_track = c.d0Err != NO_TRACK
                kind = {1: 130, 2: 22}.get(abs(c.pdgId), abs(c.pdgId))
                particles.append(
                    {
                        "px": pt * np.cos(c.phi),
                        "py": pt * np.sin(c.phi),
                        "pz": pt * np.sinh(c.eta),
                        "energy": np.sqrt((pt * np.cosh(c.eta)) ** 2 + mass**2),
                        "deta": (c.eta - jet.eta) * (-1 if jet.eta < 0 else 1),
                        "dphi": np.angle(np.exp(1j * (float(c.phi) - float(jet.phi)))),
                        "charge": c.charge,
                        "d0val": 10 * c.d0 if has_track else 0,  # cm -> mm
                        "d0err": 10 * c.d0Err if has_track else 0,
                        "dzval": 10 * c.dz if has_track else 0,
                        "dzerr": 10 * c.dzErr if has_track else 0,
                        **{f"is{name}": kind == code for code, name in PDG_IDS.items()},
                    }
                )
            names = particles[0] if particles else {"px": 0}
            pt, mass = jet.pt * raw, jet.mass * raw
            found.append(
                {f"part_{name}": np.array([p[name] for p in particles], dtype=float) for name in names}
                | {"jet_pt": pt, "jet_eta": jet.eta, "jet_phi": jet.phi}
                | {"jet_energy": np.sqrt((pt * np.cosh(jet.eta)) ** 2 + mass**2), "jet_sdmass": jet.msoftdrop}
                | {"jet_nparticles": len(own)}
            )
    return found
