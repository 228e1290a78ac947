"""Configs of every kind give the inputs and labels of weaver-core's own dataset, jet by jet."""

import re
import time

import awkward as ak
import numpy as np
import pytest
import torch
import uproot
from kinds_of_configs import (
    CLASS_NUMBER,
    HYBRID,
    INPUTS,
    LABELS_OF_WEAVER,
    PF_AND_SV,
    make_events,
    write_events,
)
from weaver.utils.dataset import SimpleIterDataset

from partt.config import parse_record
from partt.data import jet_batch
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import inspect_file
from partt.data.jagged import Jagged
from partt.data.jet_batch import JetBatch, concatenate
from partt.data.packing import pack
from partt.data.reading.batches import training_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source, read_chunk
from partt.data.variables import labels_of, name_classes, names_for, read_variables
from partt.errors import DataError
from partt.jet_inputs import Collection, JetInputs


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


@pytest.mark.parametrize("kind", LABELS_OF_WEAVER)
def test_labels_equal_weavers(kind, files, tmp_path):
    path = write_config(tmp_path, LABELS_OF_WEAVER[kind])
    inputs, labels = read_weaver(files, path)
    batch, config = read_partt(files, load_data_config(path))
    assert_equal_inputs(config, batch, inputs)
    if kind == "formulas as labels":
        assert config.class_names == ("is_b", "is_c_or_is_light")
        assert batch.targets is None
        assert batch.labels.tolist() == labels["_label_"].tolist()
        return
    assert batch.labels is None
    assert config.class_names == ()
    for name, column in zip(config.target_names, batch.targets.numpy().T, strict=True):
        known = (
            labels[f"{name}_mask"] != 0 if f"{name}_mask" in labels else np.full(len(column), fill_value=True)
        )
        np.testing.assert_allclose(column[known], labels[name][known], rtol=1e-6)
        assert np.isnan(column[~known]).all()
    assert {*config.target_names, *config.target_masks.values()} == set(labels)


def test_188_classes_without_names(files, tmp_path):
    path = write_config(tmp_path, CLASS_NUMBER)
    _, labels = read_weaver(files, path)
    config = load_data_config(path)
    numbered = name_classes(config, [inspect_file(file) for file in files])
    largest = int(labels["truth_label"].max())
    assert numbered.class_names == tuple(f"class_{number}" for number in range(largest + 1))
    assert numbered.target_names == ()
    assert parse_record(numbered.to_yaml(), DataConfig, "run") == numbered  # as a run folder keeps it
    named = name_classes(config, (), [f"H_{number}" for number in range(188)])
    batch, _ = read_partt(files, named)
    assert batch.labels.tolist() == labels["truth_label"].tolist()


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "float32"])
def test_class_numbers_of_any_type(dtype, tmp_path):
    file = tmp_path / "jets.root"
    columns = {"part_px": ak.Array([[1.0], [2.0], [3.0]]), "number": np.array([2, 0, 1], dtype)}
    with uproot.recreate(file) as root:
        root.mktree("tree", {"part_px": "var * float32", "number": dtype})
        root["tree"].extend(columns)
    text = """\
inputs: {pf_features: {length: 9, vars: [part_px]}}
labels:
  type: custom
  value: {truth: number}
  particles: {kind: {value: "np.TYPE(part_px)", names: [none, one, two]}}
""".replace("TYPE", dtype)
    config = parse_record(text, DataConfig, "config")
    info = inspect_file(str(file))
    assert name_classes(config, [info]).class_names == ("class_0", "class_1", "class_2")
    two = name_classes(config, (), ["a", "b"])
    variables = read_variables(two, names_for(two, "train"), info, 0, 3)
    assert labels_of(two, variables, strict=False).tolist() == [-1, 0, 1]
    assert pack(two, variables, particle_labels=["kind"]).particle_labels["kind"].numbers.tolist() == [
        1,
        2,
        -1,
    ]


def test_a_float_is_no_class_number(files, tmp_path):
    config = load_data_config(write_config(tmp_path, LABELS_OF_WEAVER["regression"]))
    with pytest.raises(
        DataError, match=r"entry \d+: mass_factor is [\d.]+, but a class number is a whole number"
    ):
        name_classes(config, [inspect_file(files[0])])


def test_hybrid_labels(files, tmp_path):
    """The forks' classes by number, and targets: compared with plain numpy."""
    config = load_data_config(write_config(tmp_path, HYBRID))
    batch, _ = read_partt(files[:1], config)
    jets = make_events()
    assert config.class_names == ("b", "c", "light")
    assert batch.labels.tolist() == np.argmax([jets["is_b"], jets["is_c"], jets["is_light"]], axis=0).tolist()
    assert config.target_names == ("mass_factor", "pt_factor")
    expected = np.stack([jets["gen_mass"] / jets["jet_mass"], jets["gen_pt"] / jets["jet_pt"]], axis=1)
    np.testing.assert_allclose(batch.targets, expected, rtol=1e-6)


def test_targets_that_are_not_finite_are_not_known(tmp_path):
    mass = np.array([1, 0, 2, np.nan], dtype=np.float32)
    file = str(write_events(tmp_path / "a.root", 4, jet_mass=mass))
    batch, _ = read_partt(
        [file], load_data_config(write_config(tmp_path, LABELS_OF_WEAVER["several targets"]))
    )
    known = np.isfinite(batch.targets[:, 0].numpy())
    assert known.tolist() == ((mass > 0) & (make_events(4)["has_gen"] == 1)).tolist()
    assert np.isfinite(batch.targets[:, 1].numpy()).all()


def test_batches_keep_collections_and_targets(files, tmp_path):
    """Through the cache, shuffled batches, taking and joining, jets keep what they have, in order."""
    text = PF_AND_SV + "targets:\n  value: {mass: gen_mass}\n"
    config = load_data_config(write_config(tmp_path, text))
    plain, config = read_partt(files, config)
    cache = tmp_path / "cache"
    read_partt(files, config, cache=cache)
    cached, _ = read_partt(files, config, cache=cache)
    assert list(cached.inputs.collections) == ["pf", "sv"]
    for name, collection in plain.inputs.collections.items():
        assert cached.inputs.collections[name].offsets.equal(collection.offsets)
        assert cached.inputs.collections[name].features.equal(collection.features)
        assert cached.inputs.collections[name].momenta.equal(collection.momenta)
    assert cached.targets.equal(plain.targets)

    source = open_source([InputFile("", file) for file in files], config, cache=cache)
    batches = training_batches(source, build_index(source), batch_size=50, seed=3)
    batch = concatenate([next(batches) for _ in range(4)])
    where = {
        (int(file), int(entry)): number
        for number, (file, entry) in enumerate(zip(plain.source_file, plain.source_entry, strict=True))
    }
    jets = [where[int(f), int(e)] for f, e in zip(batch.source_file, batch.source_entry, strict=True)]
    expected = plain.take(np.array(jets))
    assert len(set(jets)) == 200
    assert batch.targets.equal(expected.targets)
    for name, collection in expected.inputs.collections.items():
        assert batch.inputs.collections[name].offsets.equal(collection.offsets)
        assert batch.inputs.collections[name].momenta.equal(collection.momenta)


def test_automatic_scales_of_all_collections(files, tmp_path):
    text = f"preprocess: {{method: auto, data_fraction: 1}}\n{PF_AND_SV}".replace(
        "vars: [vertex_px, vertex_py, vertex_pz, vertex_e]",
        "vars: [[vertex_px, null], [vertex_py, null], [vertex_pz, null], [vertex_e, null]]",
    ).replace("[vertex_mass, 1, 0.5]", "vertex_mass")
    path = write_config(tmp_path, text)
    weaver = SimpleIterDataset({"_": files}, path, for_training=True).config
    batch, config = read_partt(files, load_data_config(path))
    fitted = config.collections["sv"].features.variables[0]
    assert fitted.subtract_by == pytest.approx(weaver.preprocess_params["vertex_mass"]["center"], rel=1e-6)
    assert fitted.multiply_by == pytest.approx(weaver.preprocess_params["vertex_mass"]["scale"], rel=1e-6)
    assert_equal_inputs(config, batch, read_weaver(files, path)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (17,), (0,)], ids=str)
def test_jets_are_taken_from_several_batches(shape, dtype, monkeypatch):
    random = np.random.default_rng(5)
    lengths = [random.poisson(1.5, num_jets) for num_jets in (30, 1, 20)]
    parts = [(torch.rand(int(sum(some)), *shape) * 1e6).to(dtype) for some in lengths]
    offsets = [torch.from_numpy(np.concatenate([[0], np.cumsum(some)])) for some in lengths]
    jets = random.integers(0, 51, 100)
    every_jet = [jet for part, some in zip(parts, lengths, strict=True) for jet in part.split(some.tolist())]
    expected = torch.cat([every_jet[jet] for jet in jets])
    for largest in (jet_batch.MAX_VIEWED, 50):  # bytes of a batch that arrow can take; beyond: numpy
        monkeypatch.setattr(jet_batch, "MAX_VIEWED", largest)
        batches = [JetInputs({"pf": Collection(*pair)}) for pair in zip(parts, offsets, strict=True)]
        taken = jet_batch._gathered_inputs(batches, jets).collections["pf"]
        assert taken.features.equal(expected)
        assert taken.features.dtype == dtype
        assert taken.lengths.tolist() == [len(every_jet[jet]) for jet in jets]


# --- collections without particles, and faults ---


def read_jets(folder, text: str, num_jets: int = 20, **branches) -> JetBatch:
    file = str(write_events(folder / "a.root", num_jets, **branches))
    return read_partt([file], load_data_config(write_config(folder, text)))[0]


def test_a_collection_that_is_empty_everywhere(tmp_path):
    empty = Jagged(np.empty(0, np.float32), np.zeros(21, np.int64))
    vertices = {f"vertex_{name}": empty for name in ("pt", "eta", "phi", "mass")}
    batch = read_jets(tmp_path, PF_AND_SV, **vertices)
    assert batch.inputs.collections["sv"].features.shape == (0, 2)
    assert batch.inputs.collections["sv"].lengths.tolist() == [0] * 20
    assert batch.inputs.collections["pf"].features.shape[0] > 0
    assert batch.take(np.array([3, 1])).inputs.collections["sv"].momenta.shape == (0, 4)


def test_lengths_that_disagree_inside_a_collection(tmp_path):
    lengths = np.full(20, 2)
    lengths[7] = 3
    mass = Jagged(np.ones(41, np.float32), np.concatenate([[0], np.cumsum(lengths)]))
    others = {
        f"vertex_{name}": Jagged(np.ones(40, np.float32), np.arange(21) * 2) for name in ("pt", "eta", "phi")
    }
    simple = PF_AND_SV.replace(
        "  vertex_p4: _p4_from_ptetaphim(vertex_pt, vertex_eta, vertex_phi, vertex_mass)\n", ""
    )
    simple = re.sub(r"  vertex_(px|py|pz|e): vertex_p4.*\n", "", simple)
    simple = re.sub(r"  sv_vectors:\n.*\n.*\n", "", simple)
    with pytest.raises(
        DataError,
        match="entry 7: vertex_pt has 2 values, but vertex_mass has 3; all variables of a collection need one value",
    ):
        read_jets(tmp_path, simple, vertex_mass=mass, **others)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "vars: [[jet_pt, 100, 0.01], jet_mass]\n  ft_vars:\n    length: 8",
            "vars: [[jet_pt, 100, 0.01], jet_mass]\n  ft_vars:\n    length: null",
            "entry 0: embedding has 8 values, but the input group ft_vars has one per jet, because its length",
        ),
        (
            "length: 8\n    vars: [embedding]",
            "length: 8\n    vars: [jet_eta]",
            "jet_eta has one value per jet, but the input group ft_vars has one per particle; move it",
        ),
    ],
)
def test_variables_at_the_wrong_level(old, new, message, tmp_path):
    text = INPUTS["jets and particles"]
    assert old in text
    with pytest.raises(DataError, match=message):
        read_jets(tmp_path, text.replace(old, new))
