"""Configs of every kind give the inputs and labels of weaver-core's own dataset, jet by jet."""

import time

import numpy as np
import pytest
from kinds_of_configs import INPUTS, write_events
from weaver.utils.dataset import SimpleIterDataset

from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.jet_batch import JetBatch, concatenate
from partt.data.reading.jet_source import open_source, read_chunk


@pytest.fixture(autouse=True)
def _weaver_does_not_sleep(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("events")
    return [str(write_events(folder / f"{seed}.root", seed=seed)) for seed in range(2)]


def write_config(folder, text: str) -> str:
    path = folder / "config.yaml"  # weaver leaves files of its own beside it
    path.write_text(text)
    return str(path)


def read_weaver(files: list[str], config: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return inputs (N, variables, length), by group, and labels (N,), by name, in the order of the files."""
    jets = list(SimpleIterDataset({"_": files}, config, for_training=False, fetch_step=1, async_load=False))
    inputs = {name: np.stack([jet[0][name] for jet in jets]) for name in jets[0][0]}
    labels = {name: np.array([jet[1][name] for jet in jets]) for name in jets[0][1]}
    return inputs, labels


def read_partt(files: list[str], config: DataConfig, **options) -> tuple[JetBatch, DataConfig]:
    source = open_source([InputFile("", file) for file in files], config, **options)
    chunks = [(number, *chunk) for number, file in enumerate(source.files) for chunk in file.chunks]
    return concatenate([read_chunk(source, *chunk) for chunk in chunks]), source.config


def real_slots(collection, inputs: dict[str, np.ndarray], num_particles: np.ndarray) -> np.ndarray:
    """Return which of weaver's slots (N, length) hold a particle that counts."""
    if collection.mask is not None:
        return inputs[collection.mask.name][:, 0] != 0
    length = inputs[collection.features.name].shape[2]
    return np.arange(length) < num_particles[:, None]


def assert_equal_inputs(config: DataConfig, batch: JetBatch, inputs: dict[str, np.ndarray]) -> None:
    assert config.group_order == tuple(inputs)
    compared = {collection.mask.name for collection in config.collections.values() if collection.mask}
    for name, collection in config.collections.items():
        particles = batch.inputs.collections[name]
        slots = real_slots(collection, inputs, particles.lengths.numpy())
        assert particles.lengths.tolist() == slots.sum(axis=1).tolist()
        groups = {collection.features.name: particles.features}
        groups |= {collection.momenta.name: particles.momenta} if collection.momenta else {}
        groups |= {collection.points.name: particles.points} if collection.points else {}
        groups |= {group.name: particles.others[part] for part, group in collection.others.items()}
        for group, rows in groups.items():
            theirs = inputs[group].transpose(0, 2, 1)[slots]  # (T, F)
            np.testing.assert_allclose(rows.numpy(), theirs, rtol=2e-6, atol=2e-6, err_msg=group)
            compared.add(group)
    for group, rows in batch.inputs.jet_features.items():
        np.testing.assert_allclose(
            rows.numpy(), inputs[group].reshape(rows.shape), rtol=2e-6, atol=2e-6, err_msg=group
        )
        compared.add(group)
    assert compared == set(inputs)


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_equal_weavers(kind, files, tmp_path):
    path = write_config(tmp_path, INPUTS[kind])
    inputs, labels = read_weaver(files, path)
    batch, config = read_partt(files, load_data_config(path))
    assert_equal_inputs(config, batch, inputs)
    assert batch.labels.tolist() == labels["_label_"].tolist()
