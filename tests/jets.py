"""Small random jets in the JetClass layout, for tests of everything but physics."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from partt.data.files.tables import write_table
from partt.data.jagged import Column, Jagged

CLASSES = ("QCD", "Hbb", "Hcc", "Hgg", "H4q", "Hqql", "Zqq", "Wqq", "Tbqq", "Tbl")
FLAGS = ("ChargedHadron", "NeutralHadron", "Photon", "Electron", "Muon")


def make_jets(
    num_jets: int, classes: Sequence[str] = CLASSES, seed: int = 0, max_particles: int = 140
) -> dict[str, Column]:
    """Return JetClass branches of random jets, some of them empty and some over 128 particles."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 60, num_jets)
    lengths[random.uniform(size=num_jets) < 0.05] = max_particles
    lengths[random.uniform(size=num_jets) < 0.02] = 0
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])

    def particles(values) -> Jagged:
        return Jagged(np.asarray(values, dtype=np.float32), offsets)

    def sums(values) -> np.ndarray:
        return np.array([values[a:b].sum() for a, b in itertools.pairwise(offsets)])

    pt = np.exp(random.normal(1, 1.5, total))
    eta, phi = random.normal(0, 0.3, total), random.normal(0, 0.3, total)
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    energy = np.sqrt(px**2 + py**2 + pz**2 + 0.14**2)
    kind = random.integers(0, len(FLAGS), total)
    label = np.array([CLASSES.index(name) for name in random.choice(classes, num_jets)], dtype=int)
    table: dict[str, Column] = {
        "part_px": particles(px),
        "part_py": particles(py),
        "part_pz": particles(pz),
        "part_energy": particles(energy),
        "part_deta": particles(eta),
        "part_dphi": particles(phi),
        "part_d0val": particles(random.normal(0, 0.3, total)),
        "part_d0err": particles(random.uniform(0, 0.4, total)),
        "part_dzval": particles(random.normal(0, 0.3, total)),
        "part_dzerr": particles(random.uniform(0, 1.4, total)),
        "part_charge": particles(random.integers(-1, 2, total)),
    }
    for number, flag in enumerate(FLAGS):
        table[f"part_is{flag}"] = Jagged((kind == number).astype(np.int32), offsets)
    jet_px, jet_py, jet_energy = sums(px), sums(py), sums(energy)
    table |= {
        "jet_pt": np.float32(np.hypot(jet_px, jet_py) + 1),
        "jet_eta": random.normal(0, 1, num_jets).astype(np.float32),
        "jet_phi": random.uniform(-3, 3, num_jets).astype(np.float32),
        "jet_energy": np.float32(jet_energy + 1),
        "jet_nparticles": lengths.astype(np.float32),
        "jet_sdmass": random.exponential(100, num_jets).astype(np.float32),
    }
    for number in range(1, 5):
        table[f"jet_tau{number}"] = random.uniform(0, 1, num_jets).astype(np.float32)
    for number, name in enumerate(CLASSES):
        table[f"label_{name}"] = (label == number).astype(np.int32)
    return table


def write_jets(
    path: Path, num_jets: int, classes: Sequence[str] = CLASSES, seed: int = 0, **changes: Column
) -> Path:
    """Write random jets to a ROOT file; `changes` replaces or adds branches."""
    write_table(path, make_jets(num_jets, classes, seed) | changes)
    return path
