"""Several seeds in one command, from training to the table."""

import numpy as np
import pytest
import yaml
from test_fit import assert_same_run

from jets import write_jets
from partt.cli.main import main
from partt.data.files.tables import read_columns
from partt.errors import ConfigError
from partt.tagger.loading import find_tagger, load_tagger
from partt.training.seeds import train_seeds
from small_networks import SMALL
from training_jobs import TINY_RECIPE, stop_after, tiny_recipe

PFN = {"name": "pfn", "settings": {key: list(value) for key, value in SMALL["pfn"][1].items()}}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**TINY_RECIPE, "model": PFN, "epochs": 1}))
    return "tiny.yaml"


def test_from_training_to_the_table(jet_file, recipe, tmp_path, capsys, one_figure):
    files = ["--train", str(jet_file), "--val-fraction", "0.3", "--threads", "1", "--workers", "0"]
    assert main(["train", recipe, *files, "--out", "runs", "--seeds", "2", "--seed", "4"]) == 0
    output = capsys.readouterr().out
    assert "seed 5, 2 of 2: runs/seed_5" in output
    assert "note: 2 seeds: validation accuracy" in output
    assert main(["train", recipe, *files, "--out", "one", "--seed", "5"]) == 0
    assert_same_run(tmp_path / "runs" / "seed_5", tmp_path / "one")
    assert main(["train", recipe, *files, "--out", "runs", "--seeds", "2", "--seed", "4"]) == 2
    assert main(["train", recipe, *files, "--out", "one", "--seeds", "2"]) == 2
    assert "one contains a single run" in " ".join(capsys.readouterr().err.split())
    assert main(["train", recipe, *files, "--out", "runs", "--resume"]) == 2  # which would hide the seeds
    assert "runs has 2 trainings that differ in their seed: add --seeds" in capsys.readouterr().err
    write_jets(tmp_path / "test.root", 200, seed=3)
    assert main(["predict", "--tagger", "runs", "test.root", "--out", "scores", "--threads", "1"]) == 0
    scores = [f"scores/seed_{seed}/test.root" for seed in (4, 5)]
    first, second = (read_columns(path, ["score_QCD"], 0, 200)["score_QCD"] for path in scores)
    assert not np.array_equal(first, second)
    for name in ("scores.root", "scores.pq"):
        assert main(["predict", "--tagger", "runs", "test.root", "--out", name]) == 2
        assert "runs has 2 seeds: give a folder" in capsys.readouterr().err
    assert main(["evaluate", *scores, "--out", "report", "--name", "PFN"]) == 0
    assert "PFN (2 seeds)" in capsys.readouterr().out
    with pytest.raises(
        ConfigError,
        match=r"runs has 2 trainings .* give one, like runs/seed_4, or runs/seed_\* where an ensemble",
    ):
        find_tagger("runs")
    assert load_tagger(["runs/seed_4", "runs/seed_5"]).num_networks == 2


def test_a_stopped_series_is_resumed_by_the_same_command(jet_file, tmp_path):
    changes = {"validation": 0.3, "num_workers": 0, "num_threads": 1, "num_seeds": 2}
    recipe = tiny_recipe(model=PFN, epochs=2)
    train_seeds(recipe, jet_file, out=tmp_path / "whole", **changes)
    stopped = train_seeds(recipe, jet_file, out=tmp_path / "parts", should_stop=stop_after(20), **changes)
    assert stopped.stopped
    done = train_seeds(recipe, jet_file, out=tmp_path / "parts", resume=True, **changes)
    assert not done.stopped
    for seed in ("seed_1", "seed_2"):
        assert_same_run(tmp_path / "parts" / seed, tmp_path / "whole" / seed)
