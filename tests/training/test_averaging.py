"""The exponential moving average of the weights."""

import torch
from test_distributed import assert_two_processes_resume_exactly
from test_fit import assert_same_run, metrics_of, tensors_of

from partt.model.state_dicts import without_prefix
from partt.tagger.loading import load_torch_tagger
from training_jobs import run_job, stop_after, tiny_job

STEPS = {"epochs": 1, "jets_per_epoch": 80}


def test_the_average_of_all_steps_is_validated_and_saved(jet_file, tmp_path):
    every_step = {"checkpoint_minutes": 0, "keep_checkpoints": 100}
    run_job(tiny_job(jet_file, ema={"decay": 0.6}, **STEPS, **every_step), tmp_path / "ema")
    run_job(tiny_job(jet_file, **STEPS), tmp_path / "plain")
    files = sorted((tmp_path / "ema" / "checkpoints").glob("*.pt"))
    by_step = {file.name[:14]: torch.load(file, weights_only=True) for file in files}
    assert len(by_step) == 5
    expected = None
    for step, tensors in enumerate(by_step.values()):
        decay = min(0.6, (1 + step) / (10 + step))
        now = {name: tensor.double() for name, tensor in without_prefix("network/", tensors).items()}
        average = without_prefix("average/network.", tensors)
        if expected is not None:  # that of the first step starts from the random weights, which no file has
            expected = {name: decay * expected[name] + (1 - decay) * now[name] for name in now}
            for name, tensor in average.items():
                wanted = now[name] if name.endswith("num_batches_tracked") else expected[name]
                assert torch.allclose(tensor.double(), wanted, atol=1e-6), name
        expected = {name: tensor.double() for name, tensor in average.items()}
    plain = without_prefix("network/", tensors_of(tmp_path / "plain"))  # the average changes no step
    assert all(torch.equal(plain[name], now[name].to(tensor.dtype)) for name, tensor in plain.items())
    last = metrics_of(tmp_path / "ema")[-1]
    saved = load_torch_tagger(tmp_path / "ema").network.state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in average.items())
    assert last["validation_loss"] != metrics_of(tmp_path / "plain")[-1]["validation_loss"]


def test_a_resumed_average_is_the_same(jet_file, tmp_path):
    changes = {"ema": {}, "tasks": {"classification": {"weight": 2.0}}, **STEPS}
    run_job(tiny_job(jet_file, **changes), tmp_path / "whole")
    assert run_job(tiny_job(jet_file, **changes), tmp_path / "parts", should_stop=stop_after(3)).stopped
    run_job(tiny_job(jet_file, **changes), tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    assert any(name.startswith("average/") for name in tensors_of(tmp_path / "parts"))
    job = tiny_job(jet_file, ema={"decay": 0.5}, epochs=1)
    assert_two_processes_resume_exactly(job, tmp_path / "two", stops=[2, 4])
