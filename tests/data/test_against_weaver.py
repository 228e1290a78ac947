"""Features, momenta, labels, observers and weights equal those of weaver-core's own dataset, jet by jet."""

import time
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import yaml
from weaver.utils.data.config import DataConfig as WeaverConfig
from weaver.utils.data.fileio import _read_files
from weaver.utils.data.preprocess import _apply_selection, _build_new_variables, _build_weights
from weaver.utils.dataset import SimpleIterDataset

from conftest import FIXTURES
from jets import write_jets
from partt.config import shipped_file
from partt.data.config.data_config import DataConfig, load_data_config
from partt.data.files.lists import InputFile
from partt.data.files.tables import inspect_file
from partt.data.jagged import Jagged
from partt.data.jet_batch import JetBatch, concatenate
from partt.data.packing import pack
from partt.data.reading.batches import ordered_batches
from partt.data.reading.jet_index import build_index
from partt.data.reading.jet_source import open_source, read_chunk
from partt.data.variables import labels_of, names_for, read_variables, select

# Empty bins make weaver divide by zero.
pytestmark = pytest.mark.filterwarnings(
    "ignore:(divide by zero|invalid value) encountered:RuntimeWarning:weaver"
)


@pytest.fixture(autouse=True)
def _weaver_does_not_sleep(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)


@pytest.fixture(params=["counted arrays", "std::vector"])
def files(request, tmp_path) -> list[str]:
    """Jets in the two layouts: as uproot writes them, and as ROOT itself does in JetClass."""
    if request.param == "std::vector":
        return [str(FIXTURES / "jetclass_vector_layout.root")]
    return [str(write_jets(tmp_path / f"jets_{seed}.root", 150, seed=seed)) for seed in range(2)]


def write_config(folder: Path, base: str = "jetclass_full", **changes) -> str:
    """Write a changed copy of a shipped config: weaver leaves files of its own beside it."""
    options = yaml.safe_load(shipped_file("data_configs", base).read_text())
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(options | changes, sort_keys=False))
    return str(path)


def read_partt(files: list[str], config: DataConfig) -> tuple[JetBatch, dict[str, np.ndarray]]:
    """Return the jets that prediction takes, and their observers."""
    names = names_for(config, "predict") | set(config.label_variables)
    jets, observers = [], []
    for url in files:
        file = inspect_file(url, config.treename)
        variables = select(config, read_variables(config, names, file, 0, file.num_entries), "predict")
        jets.append(pack(config, variables, labels=labels_of(config, variables, strict=False)))
        observers.append({name: variables[name] for name in config.observers})
    return concatenate(jets), {
        name: np.concatenate([part[name] for part in observers]) for name in config.observers
    }


def read_weaver(files: list[str], config: str, **options):
    """Return inputs (name -> (N, variables, length)), labels and observers in the order of the files."""
    dataset = SimpleIterDataset(
        {"_": files}, config, for_training=False, fetch_step=1, async_load=False, **options
    )
    jets = list(dataset)
    inputs = {name: np.stack([jet[0][name] for jet in jets]) for name in jets[0][0]}
    labels = np.array([next(iter(jet[1].values())) for jet in jets])
    return inputs, labels, [jet[2] for jet in jets]


def assert_equal_jets(batch: JetBatch, inputs: dict[str, np.ndarray], labels: np.ndarray) -> None:
    assert len(batch) == len(labels)
    assert batch.labels.tolist() == labels.tolist()
    particles = batch.inputs.main
    groups = {"features": particles.features, "vectors": particles.momenta, "points": particles.points}
    for name, packed in groups.items():
        padded = inputs[f"pf_{name}"]
        for jet, (start, stop) in enumerate(zip(particles.offsets[:-1], particles.offsets[1:], strict=True)):
            num_particles = int(stop - start)
            assert num_particles == int(inputs["pf_mask"][jet].sum())
            np.testing.assert_allclose(
                packed[start:stop].numpy().T,
                padded[jet][:, :num_particles],
                rtol=2e-6,
                atol=2e-6,
                err_msg=name,
            )


def test_manual_preprocessing(files, tmp_path):
    config = write_config(tmp_path)
    inputs, labels, observers = read_weaver(files, config)
    batch, ours = read_partt(files, load_data_config(config))
    assert_equal_jets(batch, inputs, labels)
    assert set(ours) == set(observers[0])
    for name, column in ours.items():
        np.testing.assert_array_equal(column, [jet[name] for jet in observers])


@pytest.mark.parametrize("base", ["jetclass_kin", "jetclass_kinpid"])
def test_other_feature_sets(files, tmp_path, base):
    config = write_config(tmp_path, base)
    inputs, labels, _ = read_weaver(files, config)
    assert_equal_jets(read_partt(files, load_data_config(config))[0], inputs, labels)


def test_selection_and_new_variables(files, tmp_path):
    config = write_config(
        tmp_path,
        selection="(jet_nparticles > 20) & (part_max_pt > 5)",
        test_time_selection="(jet_nparticles > 10) & (np.abs(jet_eta) < 1.5) & (hardest < 1e3)",
        observers=["jet_pt", "hardest", "jet_mass_squared"],
    )
    options = yaml.safe_load(Path(config).read_text())
    options["new_variables"] |= {
        "hardest": "ak.fill_none(ak.max(np.hypot(part_px, part_py), axis=1), 0)",
        "part_max_pt": "ak.fill_none(ak.max(np.hypot(part_px, part_py), axis=1), 0)",
        "part_p4": "_p4_from_pxpypze(part_px, part_py, part_pz, part_energy)",
        "jet_mass_squared": "ak.sum(part_energy, axis=1)**2 - ak.sum(part_p4.px, axis=1)**2",
    }
    Path(config).write_text(yaml.safe_dump(options, sort_keys=False))
    inputs, labels, observers = read_weaver(files, config)
    batch, ours = read_partt(files, load_data_config(config))
    assert 0 < len(batch) < sum(len(ak.Array(_read_files([file], ["jet_pt"]))) for file in files)
    assert_equal_jets(batch, inputs, labels)
    for name, column in ours.items():
        np.testing.assert_allclose(column, [jet[name] for jet in observers], rtol=1e-5)


def auto_config(tmp_path: Path) -> str:
    config = write_config(tmp_path, preprocess={"method": "auto", "data_fraction": 0.5})
    options = yaml.safe_load(Path(config).read_text())
    options["inputs"]["pf_features"]["vars"] = [
        "part_pt_log",  # fitted
        ["part_e_log", None],  # raw
        ["part_logptrel", -4.7, 0.7],  # given
        "part_d0",
        ["part_isPhoton", None],
        "part_deta",
    ]
    # coordinates and momenta are never scaled
    for group in ("pf_points", "pf_vectors"):
        options["inputs"][group]["vars"] = [
            [name, None]
            for name in (
                ["part_px", "part_py", "part_pz", "part_energy"]
                if group == "pf_vectors"
                else ["part_e_log", "part_isPhoton"]
            )
        ]
    options["selection"] = "jet_nparticles > 5"
    Path(config).write_text(yaml.safe_dump(options, sort_keys=False))
    return config


def test_automatic_preprocessing(files, tmp_path):
    config = auto_config(tmp_path)
    weaver = SimpleIterDataset({"_": files}, config, for_training=True).config
    source = open_source([InputFile("", file) for file in files], load_data_config(config))
    fitted = {variable.name: variable for variable in source.config.particles.variables}
    for name, variable in fitted.items():
        expected = weaver.preprocess_params[name]
        if expected["center"] is None:
            assert variable.subtract_by is None
        else:
            assert variable.subtract_by == pytest.approx(expected["center"], rel=1e-6)
            assert variable.multiply_by == pytest.approx(expected["scale"], rel=1e-6)
    inputs, labels, _ = read_weaver(files, config)  # takes the .auto.yaml that the first dataset has written
    assert_equal_jets(read_partt(files, source.config)[0], inputs, labels)


def test_weavers_own_auto_file_is_read(files, tmp_path):
    config = auto_config(tmp_path)
    SimpleIterDataset({"_": files}, config, for_training=True)
    (auto,) = tmp_path.glob("*.auto.yaml")
    inputs, labels, _ = read_weaver(files, config)
    assert_equal_jets(read_partt(files, load_data_config(str(auto)))[0], inputs, labels)


REWEIGHTING = {
    "use_precomputed_weights": False,
    "reweight_method": "flat",
    "reweight_vars": {"jet_nparticles": [0, 20, 40, 100], "jet_sdmass": [0, 50, 100, 300]},
    "reweight_classes": ["label_QCD", "label_Hbb", "label_Zqq"],
    "class_weights": [1, 1, 2],
    "reweight_threshold": 10,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reweight_method": "ref"},
        {"reweight_discard_under_overflow": False},
        {"reweight_basewgt": "jet_tau1 + 0.1", "reweight_threshold": 25},
    ],
    ids=["flat", "ref", "with overflow", "base weights"],
)
def test_reweighting_in_two_variables(tmp_path, changes):
    classes = ("QCD", "Hbb", "Zqq")
    files = [str(write_jets(tmp_path / f"{seed}.root", 300, classes, seed)) for seed in range(2)]
    config = write_config(tmp_path, weights=REWEIGHTING | changes, selection="jet_nparticles > 2")
    weaver = SimpleIterDataset({"_": files}, config, for_training=True).config
    source = open_source([InputFile("", file) for file in files], load_data_config(config))
    for name, expected in weaver.reweight_hists.items():
        np.testing.assert_allclose(source.config.weights.reweight_hists[name], expected, rtol=1e-5)

    table = _read_files(files, weaver.train_load_branches)
    table = _build_new_variables(_apply_selection(table, weaver.selection), weaver.train_var_funcs)
    expected = _build_weights(table, weaver)
    batch = concatenate([
        read_chunk(source, number, *chunk) for number in range(2) for chunk in source.files[number].chunks
    ])  # fmt: skip
    np.testing.assert_allclose(batch.weights, expected, rtol=1e-5)
    assert (expected > 0).any()


def test_reweighting_in_the_layout_of_jetclass(tmp_path):
    files = [str(FIXTURES / "jetclass_vector_layout.root")]
    weights = REWEIGHTING | {
        "reweight_vars": {"jet_pt": [0, 600, 2000], "jet_energy": [0, 900, 5000]},
        "reweight_classes": ["label_QCD", "label_Hbb", "label_Tbl"],
    }
    config = write_config(tmp_path, weights=weights)
    weaver = SimpleIterDataset({"_": files}, config, for_training=True).config
    source = open_source([InputFile("", file) for file in files], load_data_config(config))
    table = _build_new_variables(_read_files(files, weaver.train_load_branches), weaver.train_var_funcs)
    np.testing.assert_allclose(read_chunk(source, 0, 0, 30).weights, _build_weights(table, weaver), rtol=1e-5)


def test_precomputed_weights(tmp_path):
    file = str(write_jets(tmp_path / "a.root", 100))
    weights = {"use_precomputed_weights": True, "weight_branches": ["jet_tau1", "jet_tau2"]}
    config = write_config(tmp_path, weights=weights)
    weaver = SimpleIterDataset({"_": [file]}, config, for_training=True).config
    table = _build_new_variables(_read_files([file], weaver.train_load_branches), weaver.train_var_funcs)
    source = open_source([InputFile("", file)], load_data_config(config))
    np.testing.assert_allclose(
        read_chunk(source, 0, 0, 100).weights, _build_weights(table, weaver), rtol=1e-6
    )
    index = build_index(source)
    batch = concatenate(list(ordered_batches(source, index, batch_size=64)))
    assert batch.weights.mean() == pytest.approx(1)


def test_file_and_branch_magic(tmp_path):
    file = str(write_jets(tmp_path / "HToBB_x.root", 50))
    config = write_config(
        tmp_path,
        file_magic={"is_higgs": {"HTo": 1, "TTBar": 2}, "is_other": {"TTBar": 1}},
        branch_magic={"Jet_": "jet_"},
        observers=["is_higgs", "is_other", "Jet_sdmass"],
    )
    _, _, observers = read_weaver([file], config)
    _, ours = read_partt([file], load_data_config(config))
    for name, column in ours.items():
        assert not isinstance(column, Jagged)
        np.testing.assert_array_equal(column, [jet[name] for jet in observers])


def test_loading_weavers_config_class_is_the_reference():
    """weaver reads the same inputs from the shipped configs, in the same order."""
    for name in ("jetclass_full", "jetclass_kin", "jetclass_kinpid"):
        ours = load_data_config(name)
        theirs = WeaverConfig.load(str(shipped_file("data_configs", name)))
        assert [variable.name for variable in ours.particles.variables] == theirs.input_dicts["pf_features"]
