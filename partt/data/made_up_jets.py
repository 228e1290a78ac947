"""Random jets with the branches of JetClass, as reference jets of imported taggers."""

import numpy as np

from partt.data.jagged import Column, Jagged, Table

LENGTHS = (1, 2, 7, 40, 130)


def made_up_jets(seed: int = 1) -> Table:
    """Return the branches of five jets with 1 to 130 particles, sorted by pT; the same for the same seed."""
    random = np.random.default_rng(seed)
    lengths = np.array(LENGTHS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    num_particles = int(offsets[-1])
    jet = np.repeat(np.arange(len(lengths)), lengths)

    pt = random.exponential(10, num_particles) + 0.5
    pt = pt[np.lexsort((-pt, jet))]
    deta, dphi = random.normal(0, 0.2, (2, num_particles))
    jet_eta, jet_phi = random.normal(0, 1, len(lengths)), random.uniform(-np.pi, np.pi, len(lengths))
    eta, phi = jet_eta[jet] + deta * np.sign(jet_eta)[jet], jet_phi[jet] + dphi
    mass = 0.14
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    energy = np.sqrt(px**2 + py**2 + pz**2 + mass**2)
    kind = random.integers(0, 5, num_particles)  # charged hadron, neutral hadron, photon, electron, muon
    charged = np.isin(kind, (0, 3, 4))

    particles = {
        "px": px,
        "py": py,
        "pz": pz,
        "energy": energy,
        "deta": deta,
        "dphi": dphi,
        "charge": np.where(charged, random.choice([-1, 1], num_particles), 0),
        "d0val": np.where(charged, random.normal(0, 0.5, num_particles), 0),
        "d0err": np.where(charged, random.uniform(0, 0.2, num_particles), 0),
        "dzval": np.where(charged, random.normal(0, 0.5, num_particles), 0),
        "dzerr": np.where(charged, random.uniform(0, 0.2, num_particles), 0),
    }
    names = ("isChargedHadron", "isNeutralHadron", "isPhoton", "isElectron", "isMuon")
    particles |= {name: kind == number for number, name in enumerate(names)}
    columns: dict[str, Column] = {
        f"part_{name}": Jagged(values.astype(np.float32), offsets) for name, values in particles.items()
    }
    columns["jet_pt"] = np.add.reduceat(pt, offsets[:-1]).astype(np.float32)
    columns["jet_energy"] = np.add.reduceat(energy, offsets[:-1]).astype(np.float32)
    columns["jet_eta"] = jet_eta.astype(np.float32)
    columns["jet_phi"] = jet_phi.astype(np.float32)
    return columns
