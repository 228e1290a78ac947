"""Taggers, exported files and run folders of partt 0.1 still work: `fixtures/version_0_1/README.md`."""

import os
import shutil

import numpy as np
import pytest
import torch

from conftest import FIXTURES
from partt.data.config.data_config import load_data_config
from partt.data.files.lists import expand_files
from partt.jobs.metrics_file import read_metrics
from partt.tagger.loading import load_tagger, load_torch_tagger
from partt.tagger.tagger_file import save_tagger
from partt.training.checkpoints import load_newest
from partt.training.fit import Machine, fit
from partt.training.job import open_job
from partt.training.recipe import load_recipe
from partt.training.run_folder import RunFolder, locked_run_folder
from small_networks import variables_of

OLD = FIXTURES / "version_0_1"
RUNS = ("part_run", "particlenet_run")
TIME_OF_CHANGE = 1_700_000_000 * 10**9  # of jets.root; part of its identity in run.json


@pytest.mark.parametrize("case", [path.stem for path in sorted(OLD.glob("*.safetensors"))])
def test_a_tagger_gives_its_scores(case, tmp_path):
    tagger = load_torch_tagger(OLD / f"{case}.safetensors")  # proves itself in float64
    expected = np.load(OLD / "scores.npz")[case]
    np.testing.assert_allclose(tagger.tag(variables_of(tagger)).probabilities, expected, rtol=1e-4, atol=1e-5)
    assert tagger.versions["partt"] == "0.1.0"
    save_tagger(tmp_path / "new.safetensors", tagger)
    again = load_torch_tagger(tmp_path / "new.safetensors")
    for name, tensor in tagger.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], tensor)


@pytest.mark.parametrize("name", ["part_raw.onnx", "standardised/part.onnx"])
def test_an_exported_file_gives_its_scores(name):
    tagger = load_tagger(OLD / name)
    expected = np.load(OLD / "scores.npz")["part"]
    np.testing.assert_allclose(tagger.tag(variables_of(tagger)).probabilities, expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Enter a folder as 0.1 left it."""
    shutil.copytree(OLD, tmp_path / "old")
    os.utime(tmp_path / "old/jets.root", ns=(TIME_OF_CHANGE, TIME_OF_CHANGE))
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def resume(name, should_stop=lambda: False):
    recipe = load_recipe(f"{name}/recipe.yaml")
    config = load_data_config("jetclass_kin")
    job = open_job(recipe, config, expand_files(["jets.root"]), 0.25, seed=7)
    with locked_run_folder(name) as run:
        return fit(job, run, Machine(torch.device("cpu")), resume=True, should_stop=should_stop)


def epochs_of(name):
    epochs = read_metrics(f"{name}/metrics.jsonl", "epoch")
    return [{key: value for key, value in line.items() if key != "seconds"} for line in epochs]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_stopped_in_an_epoch_is_finished(name, folder):
    """In one go and with another stop the end is the same, bit by bit; and it is that of 0.1, but for rounding."""
    shutil.copytree(name, "again")
    assert (folder / name / "checkpoints/step-000000009-epoch-00001.json").exists()
    result = resume(name)
    assert (result.state.step, result.state.epoch, result.stopped) == (18, 3, False)
    calls = iter(range(100))
    assert resume("again", should_stop=lambda: next(calls) >= 4).stopped
    resume("again")
    ends = [load_newest(RunFolder(folder / run).checkpoints, pytest.fail) for run in (name, "again")]
    assert ends[0].values == ends[1].values
    for key, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[key]), key
    assert epochs_of(name) == epochs_of("again")
    for line, expected in zip(epochs_of(name), epochs_of(f"{name}_end"), strict=True):
        assert line.keys() == expected.keys()
        for key, value in expected.items():  # other CPUs round otherwise
            if key == "validation_auc" and value is None:  # 0.1 had none if a class has no validation jets
                continue
            assert line[key] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value), key
    ours, theirs = (
        load_torch_tagger(f"{name}/best.safetensors"),
        load_torch_tagger(f"{name}_end/best.safetensors"),
    )
    for key, tensor in theirs.network.state_dict().items():
        torch.testing.assert_close(ours.network.state_dict()[key], tensor, rtol=1e-2, atol=1e-3)
