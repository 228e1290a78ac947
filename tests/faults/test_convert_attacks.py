"""Hostile files of public datasets: one line that names the file, soon, in bounded memory; no warnings."""

import os
import random
import shutil
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from attacks import NUM_ATTACKS, outcome
from partt.conversion.convert import convert

sys.path.append(str(Path(__file__).parents[1] / "conversion"))
from dataset_files import FIXTURE, jetclass_arrays, write_quark_gluon

pytestmark = pytest.mark.filterwarnings("error")


def refused(kind, path, out) -> str:
    message = outcome(lambda: convert(kind, [path], out))
    assert message is not None
    assert str(path) in message
    return message


@pytest.mark.parametrize("pid", [2.0**31, -(2.0**40), 1e300])
def test_identities_beyond_int32(tmp_path, pid):
    particles = np.ones((4, 3, 4))
    particles[2, 1, 3] = pid
    np.savez(tmp_path / "x.npz", X=particles, y=np.ones(4))
    assert "entry 2" in (message := refused("quarkgluon", tmp_path / "x.npz", tmp_path / "out"))
    assert "not a PDG code" in message


def test_momenta_beyond_reason(tmp_path):
    particles = np.ones((4, 3, 4))
    particles[3, 1, 1] = 1000.0  # sinh(1000) is infinite
    np.savez(tmp_path / "x.npz", X=particles, y=np.ones(4))
    assert "entry 3: a momentum" in refused("quarkgluon", tmp_path / "x.npz", tmp_path / "out")


@pytest.mark.parametrize(
    ("kind", "name"), [("quarkgluon", "x.npz"), ("jetclass-npz", "x.npz"), ("toplandscape", "x.h5")]
)
def test_pipes(tmp_path, kind, name):
    os.mkfifo(tmp_path / name)
    assert "not a regular file" in refused(kind, tmp_path / name, tmp_path / "out")


def write_npz(path, **members):
    """Write an NPZ file whose members have a header of the given shape and some bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (shape, dtype, data) in members.items():
            header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
            prefix = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
            file.writestr(f"{name}.npy", prefix + header + data)


@pytest.mark.parametrize("shape", ["(4, 3, 4)", "(10**9, 3, 4)", "(1000000000000, 0, 4)", "(4, 4611686018427387904, 4)",
                                   "(-4, -3, 4)", "()", "(4,)", "4", "[4]", "(4, 3, 4.0)", "(True, 3, 4)"])  # fmt: skip
def test_shapes(tmp_path, shape):
    write_npz(tmp_path / "x.npz", X=(shape, "<f8", b"\x00" * 380), y=("(4,)", "<f8", b"\x00" * 32))
    refused("quarkgluon", tmp_path / "x.npz", tmp_path / "out")


def test_a_zip_bomb(tmp_path):
    data = b"\x00" * (4 * 100_000 * 4 * 8)
    write_npz(tmp_path / "x.npz", X=("(4, 100000, 4)", "<f8", data), y=("(4,)", "<f8", b"\x00" * 32))
    assert "at most 4096 particles" in refused("quarkgluon", tmp_path / "x.npz", tmp_path / "out")


# --- HDF5 ---------------------------------------------------------------------------------------------------


@pytest.fixture
def h5(tmp_path):
    return Path(shutil.copy(FIXTURE, tmp_path / "x.h5"))


def test_rows_that_were_never_written(h5, tmp_path):
    with h5py.File(h5, "r+") as file:
        old = file["table/table"]
        attributes, dtype = dict(old.attrs), old.dtype
        del file["table/table"]
        new = file.create_dataset("table/table", shape=(10**12,), dtype=dtype, chunks=(1000,))
        new.attrs.update(attributes)
    assert "were written" in refused("toplandscape", h5, tmp_path / "out")


@pytest.mark.parametrize(
    "value", ["text", 10**12, 1.5, np.zeros(3), b"\x80\x04", np.array(["a"], dtype="S1")]
)
def test_odd_names_of_columns(h5, tmp_path, value):
    with h5py.File(h5, "r+") as file:
        file["table/table"].attrs["values_block_0_kind"] = value
    refused("toplandscape", h5, tmp_path / "out")


def test_links_to_other_files(h5, tmp_path):
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["table"] = h5py.ExternalLink(str(h5), "/table")
    assert "another file" in refused("toplandscape", other, tmp_path / "out")


# --- seeded generators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["quarkgluon", "jetclass-npz", "toplandscape"])
def test_attacks(tmp_path, kind):
    """Flipped bytes, truncation, and extreme values."""
    path = tmp_path / ("x.h5" if kind == "toplandscape" else "x.npz")
    arrays = {}
    if kind == "quarkgluon":
        arrays = write_quark_gluon(path, 8, save=np.savez)
    elif kind == "jetclass-npz":
        arrays = jetclass_arrays(8)
        np.savez(path, **arrays)
    else:
        shutil.copy(FIXTURE, path)
    contents = path.read_bytes()
    for seed in range(NUM_ATTACKS):
        rng = random.Random(seed)
        if arrays and seed % 2:
            changed = {name: array.copy() for name, array in arrays.items()}
            array = changed[rng.choice(list(changed))]
            places = tuple(rng.randrange(size) for size in array.shape)
            array[places] = rng.choice([np.nan, np.inf, -np.inf, 1e38, -1e38, 1e20, 2.0**31, -1, 0.5, 300])
            np.savez(path, **changed)
        else:
            data = bytearray(contents)
            if rng.random() < 0.2:
                data = data[: rng.randrange(len(data))]
            else:
                for _ in range(rng.choice([1, 3, 30])):
                    # heads of HDF5 and NPY and the directory of ZIP are at the ends
                    place = rng.choice(
                        [rng.randrange(4096), -1 - rng.randrange(600), rng.randrange(len(data))]
                    )
                    data[place % len(data)] = rng.randrange(256)
            path.write_bytes(data)
        try:
            outcome(lambda out=tmp_path / "out" / f"{seed}.root": convert(kind, [path], out))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
