"""Files and seeds of a production, and what a folder refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
from simulate_helpers import DETECTOR

from partt.errors import ConfigError, DataError, OutputError
from partt.simulation.manifest import FileEntry, Manifest, locked, open_manifest, save_manifest, settings_of
from partt.simulation.pipeline import JetSelection
from partt.simulation.processes import LABELS
from partt.simulation.production import Production, files_of, missing_files

PRODUCTION = Production(
    out=Path("unused"),
    num_jets=25_000,
    labels=LABELS,
    jets_per_file=10_000,
    splits=None,
    selection=JetSelection(),
    seed=1,
    detector=DETECTOR,
)
SETTINGS = settings_of(1, 10_000, 500.0, 1000.0, "abc")


def test_files_and_jets_of_a_production():
    tasks = files_of(PRODUCTION)
    assert len(tasks) == 30
    of_hbb = [(task.name, task.num_jets) for task in tasks if task.label == "Hbb"]
    assert of_hbb == [("HToBB_000.root", 10_000), ("HToBB_001.root", 10_000), ("HToBB_002.root", 5_000)]
    assert len({task.spawn_key for task in tasks}) == 30


def test_seeds_do_not_depend_on_what_else_is_made():
    everything = {task.name: task.spawn_key for task in files_of(PRODUCTION)}
    less = replace(PRODUCTION, num_jets=11_000, labels=("Tbl", "Hbb"))
    assert all(everything[task.name] == task.spawn_key for task in files_of(less))


def test_splits_divide_all_jets_and_have_their_own_seeds():
    splits = {"train": 0.8, "val": 0.1, "test": 0.1}
    tasks = files_of(replace(PRODUCTION, num_jets=1001, labels=("Hbb",), splits=splits))
    assert {task.name: task.num_jets for task in tasks} == {
        "train/HToBB_000.root": 801,
        "val/HToBB_000.root": 100,
        "test/HToBB_000.root": 100,
    }
    assert len({task.spawn_key for task in tasks}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ("Hbb", "Hxx")}, "Hxx"),
        ({"labels": ("Hbb", "Hbb")}, "different"),
        ({"num_jets": 0}, "from 1 to"),
        ({"jets_per_file": 0}, "from 1 to"),
        ({"seed": -1}, "seed"),
        ({"selection": JetSelection(600.0, 500.0)}, "pt-min"),
        ({"splits": {"train": 0.8, "val": 0.1}}, "add up to 1"),
        ({"splits": {"../x": 0.5, "val": 0.5}}, "folder"),
        ({"splits": {"": 0.5, "val": 0.5}}, "folder"),
        ({"extras": ("vertices", "tracks")}, "extra tracks: give any of vertices, generator"),
        ({"mass_range": (20.0, 250.0)}, "mass range 20:250: should be two masses from 25 to 500 GeV"),
        ({"mass_range": (100.0, 100.0)}, "two masses"),
        ({"mass_range": (100.0, float("nan"))}, "two masses"),
        ({"mass_range": (30.0, 40.0)}, "H -> WW needs masses above 45 GeV"),
        ({"mass_range": (30.0, 250.0), "labels": ("QCD", "Tbl")}, "for classes of H, W and Z jets"),
    ],
)
def test_a_wrong_production_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        files_of(replace(PRODUCTION, **change))


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    save_manifest(tmp_path, Manifest(settings=SETTINGS))
    assert open_manifest(tmp_path, SETTINGS, []).settings == SETTINGS
    other = settings_of(2, 10_000, 500.0, 1000.0, "abd")
    with pytest.raises(ConfigError, match=r"--seed: 1 there, 2 here(.|\n)*--card"):
        open_manifest(tmp_path, other, [])


def test_options_are_settings_only_where_given():
    """Folders of partt 0.1, which had no such options, can be extended."""
    assert not {"--extra", "--mass-range"} & set(PRODUCTION.settings)
    given = replace(PRODUCTION, extras=("vertices", "generator"), mass_range=(30.0, 250.0)).settings
    assert (given["--extra"], given["--mass-range"]) == ("generator vertices", "30:250")


def test_files_of_unknown_origin_are_refused(tmp_path):
    (tmp_path / "HToBB_000.root").write_bytes(b"whatever")
    with pytest.raises(ConfigError, match=r"HToBB_000\.root"):
        open_manifest(tmp_path, SETTINGS, ["HToBB_000.root"])


def test_a_damaged_manifest_is_an_error(tmp_path):
    (tmp_path / "simulation.json").write_text('{"settings": ')
    with pytest.raises(DataError, match="damaged"):
        open_manifest(tmp_path, SETTINGS, [])


def test_a_second_run_in_the_folder_is_refused(tmp_path):
    with locked(tmp_path), pytest.raises(OutputError, match="another"), locked(tmp_path):
        pass
    with locked(tmp_path):  # free again
        pass


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"), locked(tmp_path / "file" / "folder"):
        pass


def test_fewer_jets_than_there_are_is_refused():
    entry = FileEntry(jets=10_000, bytes=1, sha256="0")
    manifest = Manifest(settings=SETTINGS, files={"HToBB_000.root": entry, "HToBB_001.root": entry})
    for num_jets in (5_000, 10_000, 15_000):
        with pytest.raises(ConfigError, match="more jets"):
            missing_files(replace(PRODUCTION, num_jets=num_jets), manifest)
    # other classes may be added to the folder
    assert len(missing_files(replace(PRODUCTION, num_jets=5_000, labels=("QCD",)), manifest)) == 1
    assert len(missing_files(replace(PRODUCTION, num_jets=20_000), manifest)) == 2 * len(LABELS)
