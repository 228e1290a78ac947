"""The data configs for vertices and masses, read from files of simulated jets."""

from itertools import pairwise

import numpy as np
import pytest
from simulate_helpers import simulated

from partt.data.config.data_config import load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import write_table
from partt.data.jet_batch import concatenate
from partt.data.reading.jet_source import open_source, read_chunk

CLASSES = ["Hbb", "QCD"]


@pytest.fixture(scope="module")
def jets(tmp_path_factory):
    """Files of two classes, and the tables that were written to them."""
    folder = tmp_path_factory.mktemp("jets")
    tables = [{**simulated(label).table, **simulated(label).extra} for label in CLASSES]
    files = [str(folder / f"{label}.root") for label in CLASSES]
    for file, table in zip(files, tables, strict=True):
        write_table(file, table)
    return files, tables


def read(files, name):
    source = open_source([InputFile("", file) for file in files], load_data_config(name))
    chunks = [(number, *chunk) for number, file in enumerate(source.files) for chunk in file.chunks]
    return concatenate([read_chunk(source, *chunk) for chunk in chunks])


def test_vertices_are_a_collection(jets):
    files, tables = jets
    batch = read(files, "jetclass_vertices")
    vertices = batch.inputs.collections["sv"]
    counts = np.concatenate([table["jet_nsv"] for table in tables])
    np.testing.assert_array_equal(np.diff(vertices.offsets), counts)
    assert (counts == 0).any()
    features = vertices.features.numpy()
    assert np.isfinite(features).all()
    assert (np.abs(features.mean(axis=0)) < 1.5).all()
    assert (features.std(axis=0) < 3).all()
    mass = np.concatenate([table["sv_mass"].contents for table in tables])
    np.testing.assert_allclose(features[:, 3], np.clip(mass - 1, -5, 5), atol=1e-5)


def test_masses_are_targets(jets):
    files, tables = jets
    config = load_data_config("jetclass_mass")
    assert config.target_names == ("mass_factor", "pt_factor")
    targets = read(files, "jetclass_mass").targets.numpy()
    higgs, qcd = tables
    momentum = higgs["jet_pt"].astype(float) * np.cosh(higgs["jet_eta"].astype(float))
    jet_mass = np.sqrt(higgs["jet_energy"].astype(float) ** 2 - momentum**2)
    first_qcd = len(jet_mass)
    np.testing.assert_allclose(targets[:first_qcd, 0] * jet_mass, 125, rtol=0.01)
    true_pt = targets[first_qcd:, 1] * qcd["jet_pt"]
    np.testing.assert_allclose(true_pt, qcd["gen_jet_pt"], rtol=1e-5)
    qcd_mass = targets[first_qcd:, 0]
    assert np.isfinite(qcd_mass).all()  # of the generator-level jet
    assert np.median(qcd_mass) < np.median(targets[:first_qcd, 0])


def test_origins_are_classes_of_particles(jets):
    files, tables = jets
    labels = read(files, "jetclass_mass").particle_labels["origin"]
    origins = [table["part_origin"] for table in tables]
    expected = [
        column.contents[first:last][:128] for column in origins for first, last in pairwise(column.offsets)
    ]
    np.testing.assert_array_equal(labels.numbers, np.concatenate(expected))
    np.testing.assert_array_equal(np.diff(labels.offsets), [len(particles) for particles in expected])
    assert {-1, 0, 1, 2} <= set(labels.numbers.tolist())
