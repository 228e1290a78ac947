"""Faults in a run: it stops with a clear error, and resumes from intact checkpoints."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from test_fit import assert_same_run, tensors_of

from partt.data.reading.batches import training_batches
from partt.errors import DataError, NumericalError, OutputError
from partt.jobs.stop_signals import REPEAT, stop_on_signal
from partt.tagger.loading import load_torch_tagger
from partt.training import fit as fit_module
from partt.training import learner as learner_module
from partt.training.checkpoints import Checkpoint, load_newest, save_checkpoint
from partt.training.distributed import World
from partt.training.events import StepDone
from partt.training.fit import Machine, fit
from partt.training.learner import fetch_sums, make_learner, take_step
from partt.training.objectives.classification import Classification
from partt.training.run_folder import RunFolder
from training_jobs import run_job, stop_after, tiny_job

FORK = multiprocessing.get_context("fork")  # importing torch in a new process takes seconds


def in_child(function, *arguments, **options):
    """Start a function in a forked process."""
    process = FORK.Process(target=function, args=arguments, kwargs=options)
    process.start()
    return process


def wait_for(condition, seconds=100.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


# --- numbers ---


@pytest.mark.parametrize("optimizer", ["ranger", "adamw"])
def test_a_huge_learning_rate_leaves_only_finite_numbers(jet_file, tmp_path, optimizer):
    job = tiny_job(jet_file, optimizer={"name": optimizer, "lr": 1e9}, checkpoint_minutes=0.0)
    with pytest.raises(NumericalError, match=r"learning rate 1e\+09.*lower optimizer.lr"):
        run_job(job, tmp_path)
    if (tmp_path / "checkpoints").exists():
        assert all(tensor.isfinite().all() for tensor in tensors_of(tmp_path).values())
    if (tmp_path / "best.safetensors").exists():
        load_torch_tagger(tmp_path / "best.safetensors")


def test_a_learning_rate_of_a_million(jet_file, tmp_path):
    job = tiny_job(jet_file, optimizer={"name": "ranger", "lr": 1e6}, checkpoint_minutes=0.0, epochs=1)
    with suppress(NumericalError):
        run_job(job, tmp_path)
    assert all(tensor.isfinite().all() for tensor in tensors_of(tmp_path).values())


def test_a_loss_that_is_not_finite_does_not_reach_the_weights(jet_file, tmp_path, monkeypatch):
    job = tiny_job(jet_file, epochs=1, checkpoint_minutes=0.0)
    run_job(job, tmp_path / "whole")
    original, calls = Classification.losses, iter(range(100))

    def broken(*arguments):
        losses = original(*arguments)
        return replace(losses, loss=losses.loss * (float("nan") if next(calls) == 3 else 1))

    monkeypatch.setattr(Classification, "losses", broken)
    with pytest.raises(NumericalError, match="step 3: the loss is nan"):
        run_job(job, tmp_path / "run")
    monkeypatch.undo()
    run_job(job, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def small_learner(jet_file, **changes):
    job = tiny_job(jet_file, **changes)
    learner = make_learner(job, World(), torch.device("cpu"))
    batches = training_batches(job.train, job.train_index, batch_size=16, seed=1)
    return learner, next(batches)


def unchanged(learner, before):
    return all(torch.equal(tensor, before[name]) for name, tensor in learner.network.state_dict().items())


def copy_of_weights(learner):
    return {name: tensor.clone() for name, tensor in learner.network.state_dict().items()}


def test_a_gradient_that_is_not_finite_does_not_reach_the_weights(jet_file):
    learner, batch = small_learner(jet_file)
    weights = {name: parameter.clone() for name, parameter in learner.network.named_parameters()}
    learner.network.heads["classes"].output.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(NumericalError, match="step 5: the gradient's norm is"):
        take_step(learner, iter([batch]), 5, 1e-3, accumulate=1)
    for name, parameter in learner.network.named_parameters():
        assert torch.equal(parameter, weights[name])


# --- numbers on a GPU, which is not waited for: the same steps, with guards as there ---


@pytest.fixture
def guarded_as_on_a_gpu(monkeypatch):
    for module in (learner_module, fit_module):
        monkeypatch.setattr(module, "checks_at_once", lambda device: False)
    monkeypatch.setattr(fit_module, "STEPS_AT_A_TIME", 4)


def test_numbers_that_are_fetched_later_are_the_same(jet_file, tmp_path, request):
    job = tiny_job(jet_file, ema={"decay": 0.9}, clip_norm=1.0, accumulate=2, epochs=2)
    run_job(job, tmp_path / "at once")
    request.getfixturevalue("guarded_as_on_a_gpu")
    reported = []
    run_job(job, tmp_path / "later", report=reported.append)
    assert_same_run(tmp_path / "later", tmp_path / "at once")
    steps = [event.step for event in reported if isinstance(event, StepDone)]
    assert steps == [4, 6, 10, 12]  # of two epochs of six steps


def test_a_stop_saves_steps_that_were_not_fetched(jet_file, tmp_path, guarded_as_on_a_gpu):
    job = tiny_job(jet_file, epochs=1)
    run_job(job, tmp_path / "whole")
    assert run_job(job, tmp_path / "run", should_stop=stop_after(1)).stopped
    run_job(job, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("bad_step", [3, 8])
def test_a_masked_update_stops_the_run_a_few_steps_later(
    jet_file, tmp_path, monkeypatch, guarded_as_on_a_gpu, bad_step
):
    job = tiny_job(jet_file, epochs=2, checkpoint_minutes=0.0)
    original, calls = Classification.losses, iter(range(100))

    def broken(*arguments):
        losses = original(*arguments)
        return replace(losses, loss=losses.loss * (float("nan") if next(calls) == bad_step else 1))

    monkeypatch.setattr(Classification, "losses", broken)
    with pytest.raises(NumericalError, match=f"step {bad_step}: the loss is nan"):
        run_job(job, tmp_path)
    saved = sorted(path.stem for path in (tmp_path / "checkpoints").glob("*.json"))
    assert all(int(name.split("-")[1]) <= bad_step for name in saved)  # none after the bad step
    assert len(saved) == (0 if bad_step < 4 else 2)  # of the first epoch, before and after validation


@pytest.mark.parametrize("optimizer", ["ranger", "adamw", "sgd"])
def test_a_masked_update_leaves_finite_numbers(jet_file, guarded_as_on_a_gpu, optimizer):
    learner, batch = small_learner(jet_file, optimizer={"name": optimizer, "lr": 1e-3}, ema={"decay": 0.9})
    take_step(learner, iter([batch]), 0, 1e-3, accumulate=1)
    buffers = {name: buffer.clone() for name, buffer in learner.network.named_buffers()}
    norm = learner.network.backbone.pair_embedding.input_norm
    hook = norm.register_forward_pre_hook(lambda module, inputs: (inputs[0] * float("inf"),))
    result = take_step(learner, iter([batch]), 1, 1e-3, accumulate=1)
    with pytest.raises(NumericalError, match="step 1: the loss is"):
        fetch_sums([result])
    hook.remove()
    for name, buffer in learner.network.named_buffers():
        assert torch.equal(buffer, buffers[name])
    states = [value for state in learner.optimizer.state.values() for value in state.values()]
    for tensor in [*learner.network.parameters(), *states, *learner.average.state_dict().values()]:
        assert tensor.isfinite().all()


@pytest.mark.parametrize("name", ["features", "momenta"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_input_that_is_not_finite_reaches_no_batch_norm(jet_file, name, value):
    learner, batch = small_learner(jet_file)
    before = copy_of_weights(learner)
    particles = batch.inputs.main
    row = len(particles.features) // 2
    getattr(particles, name)[row, 0] = value
    jet = int((particles.offsets[1:] <= row).sum())
    with pytest.raises(DataError, match=f"entry {int(batch.source_entry[jet])}: the {name} of this jet"):
        take_step(learner, iter([batch]), 0, 1e-3, accumulate=1)
    assert unchanged(learner, before)


# --- killed, stopped ---


def save_forever(folder):
    tensors = {"x": torch.arange(200_000)}
    for step in range(10**6):
        save_checkpoint(folder, f"step-{step:09d}", Checkpoint(tensors, {"step": step}), keep=2)


def test_kills_in_checkpoint_writes_leave_a_sound_one(tmp_path):
    random.seed(1)
    folder = tmp_path / "checkpoints"
    started = time.monotonic()
    save_checkpoint(folder, "step-000000000", Checkpoint({"x": torch.arange(200_000)}, {"step": 0}), keep=2)
    few_writes = max(0.04, 10 * (time.monotonic() - started))  # seconds; a busy machine takes longer
    newest = 0
    for _ in range(50):
        child = in_child(save_forever, folder)
        time.sleep(random.uniform(0.0, few_writes))
        child.kill()
        child.join()
        checkpoint = load_newest(folder, pytest.fail)
        assert torch.equal(checkpoint.tensors["x"], torch.arange(200_000))
        newest = max(newest, checkpoint.values["step"])
    assert newest > 0


def run_with_kills(job, out, whole):
    """Kill a run at random times, and resume it until it ends; return the number of kills."""
    for attempt in range(100):
        child = in_child(run_job, job, out, resume=attempt > 0)
        child.join(random.uniform(0.02, 0.2) * whole if attempt < 16 else None)
        if child.exitcode is not None:
            break
        child.kill()
        child.join()
    assert child.exitcode == 0
    return attempt


def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not(jet_file, tmp_path):
    random.seed(2)
    job = tiny_job(jet_file, epochs=2, checkpoint_minutes=0.0)
    started = time.monotonic()
    in_child(run_job, job, tmp_path / "whole").join()
    whole = time.monotonic() - started
    while run_with_kills(job, tmp_path / "run", whole) < 4:  # a machine that was busier before
        shutil.rmtree(tmp_path / "run")
        whole /= 3
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def run_until_signal(job, out):
    with stop_on_signal() as should_stop:
        os._exit(75 if run_job(job, out, should_stop=should_stop).stopped else 0)


def test_sigterm_ends_after_the_step_with_everything_saved(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=6)
    run_job(job, tmp_path / "whole")
    child = in_child(run_until_signal, job, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 8)
    child.terminate()
    child.join(100)
    assert child.exitcode == 75
    run_job(job, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def wait_with_handlers(ready):
    with stop_on_signal() as should_stop:
        ready.touch()
        while not should_stop():
            time.sleep(0.01)
        ready.with_name("stopping").touch()
        time.sleep(200)


def test_a_second_signal_ends_it_at_once(tmp_path):
    child = in_child(wait_with_handlers, tmp_path / "ready")
    wait_for((tmp_path / "ready").exists)
    child.terminate()
    wait_for((tmp_path / "stopping").exists)
    time.sleep(REPEAT)
    child.terminate()
    child.join(100)
    assert child.exitcode == 128 + signal.SIGTERM


# --- disk, processes ---


def run_with_small_files(job, out, limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        run_job(job, out, resume=True)
    except OutputError as error:
        os._exit(OutputError.exit_code if "cannot write" in str(error) else 1)


def test_a_full_disk_is_an_error_and_no_checkpoint_is_lost(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=2)
    run_job(job, tmp_path / "whole")
    calls = iter(range(100))
    run_job(job, tmp_path / "run", should_stop=lambda: next(calls) == 3)
    before = tensors_of(tmp_path / "run")
    child = in_child(run_with_small_files, job, tmp_path / "run", 30_000)
    child.join()
    assert child.exitcode == OutputError.exit_code
    after = tensors_of(tmp_path / "run")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    run_job(job, tmp_path / "run", resume=True)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_dead_reading_process_is_an_error(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=200)

    def kill_reader(event):
        if isinstance(event, StepDone) and event.step == 3:
            for process in multiprocessing.active_children():
                process.kill()

    machine = Machine(torch.device("cpu"), num_workers=1)
    with pytest.raises(DataError, match="a process that reads jets has died"):
        fit(job, RunFolder(tmp_path), machine, report=kill_reader)
    assert not multiprocessing.active_children()


def test_the_number_of_reading_processes_changes_nothing(jet_file, tmp_path):
    job = tiny_job(jet_file, epochs=1)
    run_job(job, tmp_path / "none")
    (tmp_path / "two").mkdir()
    fit(job, RunFolder(tmp_path / "two"), Machine(torch.device("cpu"), num_workers=2))
    assert_same_run(tmp_path / "two", tmp_path / "none")
