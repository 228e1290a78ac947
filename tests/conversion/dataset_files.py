"""Small files of the public datasets, laid out as the published ones.

As a program, write tests/fixtures/top_landscape.h5 with pandas, as the real files were made:
python tests/conversion/dataset_files.py (needs pandas and PyTables, which come with weaver-core).
"""

import pickle
from pathlib import Path

import h5py
import numpy as np

FIXTURE = Path(__file__).parents[1] / "fixtures" / "top_landscape.h5"
NUM_PLACES = 200
COMPONENTS = ("E", "PX", "PY", "PZ")
PIDS = (211, -211, 321, -321, 2212, -2212, 130, 2112, -2112, 22, 11, -11, 13, -13)


def padded_jets(num_jets: int, num_places: int, seed: int = 0):
    """Return pT, eta, phi (N, P) in float32, zero beyond a jet's particles; the fourth jet is empty."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 25, num_jets)
    lengths[3:4] = 0
    pt = np.sort(np.exp(random.normal(2, 1, (num_jets, num_places))))[:, ::-1]
    angles = random.normal(0, 0.3, (2, num_jets, num_places)) + random.normal(0, 1, (2, num_jets, 1))
    real = np.arange(num_places) < lengths[:, np.newaxis]
    return (np.where(real, values, 0).astype(np.float32) for values in (pt, *angles))


def top_landscape_columns(num_jets: int) -> dict[str, np.ndarray]:
    """Return the columns of the top landscape."""
    pt, eta, phi = padded_jets(num_jets, NUM_PLACES)
    momenta = (pt * np.cosh(eta), pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta))
    columns = {
        f"{component}_{i}": values[:, i]
        for i in range(NUM_PLACES)
        for component, values in zip(COMPONENTS, momenta, strict=True)
    }
    columns |= {f"truth{component}": np.zeros(num_jets, np.float32) for component in COMPONENTS}
    return columns | {"ttv": np.full(num_jets, 2), "is_signal_new": np.arange(num_jets) % 2}


def fixture_columns() -> dict[str, np.ndarray]:
    """Return the columns of FIXTURE as it stores them, which is how `top_landscape_columns` made them.

    Sines and hyperbolic functions may differ in the last bit on another CPU, so they are read from the file.
    """
    with h5py.File(FIXTURE) as file:
        floats = file["table/table"]["values_block_0"]
    made = top_landscape_columns(len(floats))
    names = [name for name, values in made.items() if values.dtype == floats.dtype]
    stored = dict(zip(names, floats.T, strict=True))
    for name, values in stored.items():
        np.testing.assert_allclose(values, made[name], rtol=3e-7, err_msg=name)
    return made | stored


def write_top_landscape(path: Path, columns: dict[str, np.ndarray], key: str = "table") -> Path:
    """Write an HDF5 file as pandas does: a block for each type of column, names in pickled attributes."""
    types = dict.fromkeys(values.dtype for values in columns.values())
    blocks = [[name for name, values in columns.items() if values.dtype == dtype] for dtype in types]
    layout = [("index", np.int64)]
    layout += [
        (f"values_block_{i}", dtype, (len(names),))
        for i, (dtype, names) in enumerate(zip(types, blocks, strict=True))
    ]
    rows = np.zeros(len(next(iter(columns.values()))), dtype=layout)
    rows["index"] = np.arange(len(rows))
    for i, names in enumerate(blocks):
        rows[f"values_block_{i}"] = np.stack([columns[name] for name in names], axis=1)
    with h5py.File(path, "w") as file:
        table = file.create_dataset(f"{key}/table", data=rows)
        for i, names in enumerate(blocks):
            table.attrs[f"values_block_{i}_kind"] = np.bytes_(pickle.dumps(names, 0))
    return path


def write_quark_gluon(path: Path, num_jets: int, save=np.savez_compressed) -> dict[str, np.ndarray]:
    """Write an NPZ file with X and y; particles are not sorted."""
    random = np.random.default_rng(1)
    pt, eta, phi = padded_jets(num_jets, 30)
    pid = np.where(pt > 0, random.choice(PIDS, pt.shape), 0)
    particles = np.stack([pt, eta, np.where(pt > 0, phi + np.pi, 0), pid], axis=2).astype(np.float64)
    order = np.argsort(random.uniform(size=pt.shape), axis=1)
    particles = np.take_along_axis(particles, order[:, :, np.newaxis], axis=1)
    arrays = {"X": particles, "y": (np.arange(num_jets) % 2).astype(np.float64)}
    save(path, **arrays)
    return arrays


def jetclass_arrays(num_jets: int) -> dict[str, np.ndarray]:
    """Return padded JetClass jets of all classes."""
    pt, eta, phi = padded_jets(num_jets, 40)
    momenta = (pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta))
    return {
        "momenta": np.stack(momenta, axis=1).astype(np.float32),
        "points": np.stack([eta, phi], axis=1).astype(np.float32) / 4,
        "mask": (pt > 0).astype(np.float32)[:, np.newaxis],
        "labels": np.eye(10, dtype=np.float32)[np.arange(num_jets) % 10],
    }


if __name__ == "__main__":
    import pandas as pd

    frame = pd.DataFrame(top_landscape_columns(40))
    frame.to_hdf(FIXTURE, key="table", mode="w", format="table", complib="blosc", complevel=9)
