"""Runs: they learn, write a complete run folder, and resume exactly."""

import errno
import fcntl
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from partt.data.reading.jet_index import JetIndex
from partt.data.reading.read_plan import Chunk
from partt.errors import ConfigError, DataError
from partt.jobs.metrics_file import read_metrics
from partt.tagger.loading import load_torch_tagger
from partt.training.checkpoints import load_newest
from partt.training.events import EpochEnded, Notice, Started, StepDone, Validating
from partt.training.objectives.classification import Classification
from partt.training.objectives.objective import Measurements
from partt.training.recipe import load_recipe
from partt.training.run_folder import RunFolder, locked_run_folder
from partt.training.steps import pass_notices
from small_networks import SMALL_SLIM
from training_jobs import run_job, stop_after, tiny_job, tiny_recipe

TIMES = {"seconds"}


def tensors_of(out):
    return load_newest(RunFolder(out).checkpoints, pytest.fail).tensors


def metrics_of(out):
    lines = read_metrics(RunFolder(out).metrics)
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def assert_same_run(out, expected):
    mine, theirs = tensors_of(out), tensors_of(expected)
    assert mine.keys() == theirs.keys()
    assert any(name.startswith("optimizer/") for name in mine)
    for name, tensor in mine.items():
        assert torch.equal(tensor, theirs[name]), name
    assert metrics_of(out) == metrics_of(expected)
    assert (
        load_torch_tagger(out / "best.safetensors").sha256
        == load_torch_tagger(expected / "best.safetensors").sha256
    )


def test_a_run_leaves_a_complete_folder(jet_file, tmp_path):
    events = []
    result = run_job(tiny_job(jet_file), tmp_path / "run", report=events.append)
    assert (result.state.step, result.state.epoch, result.stopped) == (18, 3, False)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {
        "best.safetensors",
        "checkpoints",
        "curves.png",
        "data_config.yaml",
        "environment.json",
        "lock",
        "metrics.jsonl",
        "recipe.yaml",
        "run.json",
        "tensorboard",
    }
    assert load_recipe(str(tmp_path / "run" / "recipe.yaml")).optimizer == tiny_recipe().optimizer
    tagger = load_torch_tagger(tmp_path / "run" / "best.safetensors")
    assert tagger.class_names[0] == "QCD"
    (environment,) = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["versions"]["torch"]
    assert environment["git"]["partt"] is None or environment["git"]["partt"]["commit"]
    epochs = read_metrics(tmp_path / "run" / "metrics.jsonl", "epoch")
    assert [line["epoch"] for line in epochs] == [0, 1, 2]
    assert 0 < epochs[0]["validation_auc"] < 1
    assert epochs[0]["validation_num_jets"] + 0 == tiny_job(jet_file).validation_index.num_jets
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, EpochEnded) for event in events) == 3
    steps = [event.step for event in events if isinstance(event, StepDone)]
    assert steps == list(range(1, 19))
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").glob("*.json")}
    kept = {2, 3, result.state.best_epoch + 1}  # the newest two, and the best
    assert checkpoints == {f"step-{6 * epoch:09d}-epoch-{epoch:05d}.json" for epoch in kept}


def test_the_best_checkpoint_is_kept(jet_file, tmp_path):
    job = tiny_job(jet_file, optimizer={"lr": 1e-12}, metric="loss", epochs=5, keep_checkpoints=1)
    best = run_job(job, tmp_path).state.best_epoch
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.json"))
    assert names == sorted({f"step-{6 * epoch:09d}-epoch-{epoch:05d}.json" for epoch in (best + 1, 5)})


def test_same_seed_same_weights_other_seed_others(jet_file, tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        run_job(tiny_job(jet_file, seed=seed, steps=4, epochs=None), tmp_path / name)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    name = "network/heads.classes.output.weight"
    assert not torch.equal(tensors_of(tmp_path / "a")[name], tensors_of(tmp_path / "c")[name])


@pytest.mark.parametrize(
    ("optimizer", "schedule", "changes"),
    [
        ("ranger", "constant", {}),
        ("ranger", "flat_decay", {}),
        ("ranger", "cosine", {}),
        ("ranger", "one_cycle", {}),
        ("adamw", "flat_cosine", {}),
        ("adamw", "one_cycle", {"model": {"name": "slim_m", "settings": SMALL_SLIM}}),
        ("adam", "flat_linear", {}),
        ("sgd", "steps", {}),
    ],
)
def test_resuming_in_the_middle_of_an_epoch_is_exact(jet_file, tmp_path, optimizer, schedule, changes):
    extra = {"momentum": 0.9} if optimizer == "sgd" else {}
    factors = {"heads": 2.0, "blocks": 0.5}
    job = tiny_job(
        jet_file,
        optimizer={"name": optimizer, "lr": 1e-2, "weight_decay": 0.01, "lr_factors": factors, **extra},
        schedule={"name": schedule, "warmup_steps": 0 if schedule == "one_cycle" else 3},
        validation_jets_per_epoch=40,
        accumulate=2,
        clip_norm=1.0,
        epochs=2,
        **changes,
    )
    run_job(job, tmp_path / "whole")
    assert run_job(job, tmp_path / "parts", should_stop=stop_after(4)).stopped
    torch.manual_seed(12345)  # whatever else a process has done
    assert run_job(job, tmp_path / "parts", resume=True, should_stop=stop_after(5)).stopped
    assert not run_job(job, tmp_path / "parts", resume=True).stopped
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_fewer_validation_jets_are_the_same_in_every_epoch(jet_file, tmp_path):
    """With a learning rate of almost nothing and no BatchNorm, equal jets have equal metrics."""
    job = tiny_job(
        jet_file,
        model={"name": "pfn"},
        optimizer={"name": "sgd", "lr": 1e-30},
        validation_jets_per_epoch=40,
        epochs=2,
    )
    events = []
    run_job(job, tmp_path, report=events.append)
    first, second = read_metrics(tmp_path / "metrics.jsonl", "epoch")
    assert first["validation_num_jets"] == second["validation_num_jets"] == 40
    assert first["validation_loss"] == second["validation_loss"]
    assert max(event.num_jets for event in events if isinstance(event, Validating)) == 40
    assert next(event for event in events if isinstance(event, Started)).validation_jets_per_epoch == 40


def test_the_size_of_the_network_is_noted_and_decides_nothing(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=1)
    run_job(job, tmp_path)
    definition = json.loads((tmp_path / "run.json").read_text())
    network = definition.pop("network")
    assert network["num_parameters"] == network["num_trainable"]
    assert network["multiply_adds_per_jet"] > 1000 * network["particles_per_jet"]
    (tmp_path / "run.json").write_text(json.dumps({**definition, "network": {"num_parameters": 0}}))
    run_job(job, tmp_path, resume=True)
    (tmp_path / "run.json").write_text(json.dumps(definition))  # of an older version
    run_job(job, tmp_path, resume=True)


def test_a_stop_in_validation_saves_and_validates_again(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=2)
    run_job(job, tmp_path / "whole")
    # steps 1 to 6 ask once each, then validation asks before each batch
    stopped = run_job(job, tmp_path / "parts", should_stop=stop_after(8))
    assert stopped.stopped
    assert (stopped.state.step, stopped.state.epoch) == (6, 0)
    run_job(job, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_a_finished_run_resumes_to_nothing(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=1)
    run_job(job, tmp_path)
    before = tensors_of(tmp_path)
    result = run_job(job, tmp_path, resume=True)
    assert (result.state.step, result.stopped) == (6, False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in tensors_of(tmp_path).items())


def test_a_finished_run_goes_on_with_more_epochs(jet_file, tmp_path):
    """Not before it is finished, and not with another change."""
    stopped = run_job(tiny_job(jet_file, epochs=2), tmp_path, should_stop=stop_after(8))
    assert stopped.state.epoch == 0
    with pytest.raises(ConfigError, match="recipe.epochs: 2 before, 3 now"):
        run_job(tiny_job(jet_file, epochs=3), tmp_path, resume=True)
    run_job(tiny_job(jet_file, epochs=2), tmp_path, resume=True)
    with pytest.raises(ConfigError, match="recipe.optimizer.lr"):
        run_job(tiny_job(jet_file, epochs=3, optimizer={"lr": 0.5}), tmp_path, resume=True)
    longer = run_job(tiny_job(jet_file, epochs=3), tmp_path, resume=True)
    assert (longer.state.epoch, longer.state.step) == (3, 18)
    assert "epochs: 3" in (tmp_path / "recipe.yaml").read_text()
    with pytest.raises(ConfigError, match="recipe.epochs: 3 before, 2 now"):
        run_job(tiny_job(jet_file, epochs=2), tmp_path, resume=True)


def test_accumulation_computes_the_same_gradient(jet_file, tmp_path):
    """Without BatchNorm and dropout, two halves of a batch give the same step as the whole."""
    network = {"name": "pfn"}
    for accumulate in (1, 2):
        job = tiny_job(jet_file, model=network, accumulate=accumulate, steps=1, epochs=None)
        run_job(job, tmp_path / str(accumulate))
    one, two = tensors_of(tmp_path / "1"), tensors_of(tmp_path / "2")
    for name, tensor in one.items():
        if name.startswith("network/") and tensor.is_floating_point() and "running" not in name:
            torch.testing.assert_close(tensor, two[name], rtol=1e-4, atol=1e-6)


def test_early_stopping(jet_file, tmp_path):
    job = tiny_job(jet_file, optimizer={"lr": 1e-12}, metric="loss", patience=2, epochs=9, batch_size=48)
    result = run_job(job, tmp_path)
    assert result.state.epoch - 1 - result.state.best_epoch == 2
    assert result.state.epoch < 9


def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(jet_file, tmp_path):
    job = tiny_job(jet_file)
    run_job(job, tmp_path / "whole")
    run_job(job, tmp_path / "run", should_stop=stop_after(12))
    newest = max((tmp_path / "run" / "checkpoints").glob("*.pt"))
    contents = bytearray(newest.read_bytes())
    contents[len(contents) // 2] ^= 1
    newest.write_bytes(contents)
    events = []
    run_job(job, tmp_path / "run", resume=True, report=events.append)
    assert any(isinstance(event, Notice) and "sha256" in event.text for event in events)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    checkpoints = list((tmp_path / "run" / "checkpoints").glob("*.pt"))
    assert 2 <= len(checkpoints) <= 3  # the newest two, and the best one
    for path in checkpoints:
        path.write_bytes(b"")
    with pytest.raises(DataError, match=f"all {len(checkpoints)} checkpoints .* are damaged"):
        run_job(job, tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    "change", [lambda values: values["state"].update(step=1), lambda values: values.pop("state")]
)
def test_changed_numbers_of_a_checkpoint(jet_file, tmp_path, change):
    """A run went on from another step, or ended with a KeyError."""
    job = tiny_job(jet_file)
    run_job(job, tmp_path / "whole")
    run_job(job, tmp_path / "run", should_stop=stop_after(12))
    newest = max((tmp_path / "run" / "checkpoints").glob("*.json"))
    values = json.loads(newest.read_text())
    change(values)
    newest.write_text(json.dumps(values))
    events = []
    run_job(job, tmp_path / "run", resume=True, report=events.append)
    assert any(isinstance(event, Notice) and "of its values has changed" in event.text for event in events)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_without_its_checkpoints_does_not_start_again(jet_file, tmp_path):
    """Its tagger was replaced by one of a new run, without a word."""
    job = tiny_job(jet_file, epochs=2)
    run_job(job, tmp_path)
    tagger = (tmp_path / "best.safetensors").read_bytes()
    log = (tmp_path / "metrics.jsonl").read_text()
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(
        DataError, match="checkpoints has no checkpoint, but 2 epochs were trained: restore it"
    ):
        run_job(job, tmp_path, resume=True)
    assert (tmp_path / "best.safetensors").read_bytes() == tagger
    assert (tmp_path / "metrics.jsonl").read_text() == log
    (tmp_path / "metrics.jsonl").write_text("")  # as if it had been killed in its first epoch
    assert run_job(job, tmp_path, resume=True).state.epoch == 2


def test_a_changed_config_is_refused(jet_file, tmp_path):
    run_job(tiny_job(jet_file, steps=1, epochs=None), tmp_path)
    with pytest.raises(ConfigError, match="already contains a run; add --resume"):
        run_job(tiny_job(jet_file, steps=1, epochs=None), tmp_path)
    changes = {"optimizer": {"name": "ranger", "lr": 0.1}, "batch_size": 32}
    changed = tiny_job(jet_file, seed=8, steps=1, epochs=None, **changes)
    with pytest.raises(ConfigError) as caught:
        run_job(changed, tmp_path, resume=True)
    for difference in (
        "recipe.optimizer.lr: 0.01 before, 0.1 now",
        "recipe.batch_size: 16 before, 32 now",
        "seed: 7 before, 8 now",
    ):
        assert difference in str(caught.value)


def test_another_objective_is_refused(jet_file, tmp_path):
    class Other(Classification):
        """Learns something else."""

    job = tiny_job(jet_file, steps=1, epochs=None)
    run_job(job, tmp_path)
    with pytest.raises(ConfigError, match='objective: "Classification" before, "Other" now'):
        run_job(replace(job, objective=Other(10)), tmp_path, resume=True)


def test_changed_files_are_refused(jet_file, tmp_path):
    jets = tmp_path / "jets.root"
    jets.write_bytes(jet_file.read_bytes())
    run_job(tiny_job(jets, steps=1, epochs=None), tmp_path / "run")
    other = jets.rename(tmp_path / "other.root")
    with pytest.raises(ConfigError, match=r"train\.files: 2 of 2 differ, the first is .*jets\.root"):
        run_job(tiny_job(other, steps=1, epochs=None), tmp_path / "run", resume=True)


def test_two_runs_in_one_folder(tmp_path):
    with (
        locked_run_folder(tmp_path),
        pytest.raises(ConfigError, match="another process is training in"),
        locked_run_folder(tmp_path),
    ):
        pass
    with locked_run_folder(tmp_path):
        pass


def test_a_file_system_without_locks(tmp_path, monkeypatch):
    """Like Lustre, unless it is mounted with them."""

    def flock(descriptor, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked_run_folder(tmp_path) as folder:
        folder.keep_lock()


def test_the_batch_must_divide(jet_file, tmp_path):
    with pytest.raises(ConfigError, match="make it a multiple of 3"):
        run_job(tiny_job(jet_file, accumulate=3), tmp_path)


def test_validation_jets_without_weight():
    """It was a ZeroDivisionError: some of the jets may have no weight, but not all that validate."""
    sums = {"loss": torch.tensor(0.0), "correct": torch.tensor(0.0), "weight": torch.tensor(0.0)}
    values = {"probabilities": torch.ones(2, 3), "labels": torch.tensor([0, 1])}
    with pytest.raises(DataError, match="weights of the validation jets add up to 0"):
        Classification(3).validation_values(Measurements(2, sums, values))


def test_passes_without_jets_are_not_counted():
    """Weights may leave less than one jet in a pass; that there are too few is said when they are read."""
    chunk = Chunk(0, 0, 1, 1, 0.5, "")
    index = JetIndex((chunk,), np.array([[1]]), 0.5)
    assert pass_notices(tiny_recipe(), index) == []
    (notice,) = pass_notices(tiny_recipe(), replace(index, chunks=(replace(chunk, expected=2.0),)))
    assert "96 jets are 48 passes over the 2 training jets" in notice
