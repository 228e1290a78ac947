"""Which GPU a process takes, and what users learn when its memory is full."""

import inspect
import threading
import time

import numpy as np
import pytest
import torch
from torch import distributed, nn

from jets import write_jets
from partt.errors import ConfigError
from partt.jet_inputs import JetInputs
from partt.jobs.devices import choose_device
from partt.model.baselines.pfn import PFN
from partt.model.network import Network
from partt.tagger import tagger_file
from partt.tagger.inference import sharing_threads
from partt.training.distributed import World, connected
from small_networks import make_tagger, variables_of
from training_jobs import run_job, tiny_job


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_each_local_process_has_its_own_gpu(four_gpus, name):
    assert choose_device(name) == torch.device("cuda")
    assert [choose_device(name, rank).index for rank in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ConfigError, match="cuda:4: torch finds 4 GPUs"):
        choose_device(name, 4)


def test_a_numbered_gpu(four_gpus):
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cpu", 2) == torch.device("cpu")
    with pytest.raises(ConfigError, match="each of several processes uses its own GPU"):
        choose_device("cuda:1", 2)
    with pytest.raises(ConfigError, match="cuda:7: torch finds 4 GPUs"):
        choose_device("cuda:7")


@pytest.mark.parametrize(("name", "chosen"), [("cuda:1", [1]), ("cuda", []), ("cpu", [])])
def test_a_numbered_gpu_is_the_current_one(four_gpus, monkeypatch, name, chosen):
    """Whatever torch puts on "the" GPU, such as the thread that pins memory, leaves the first one alone."""
    found = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: found.append(device.index))
    with connected(World(), choose_device(name)):
        assert found == chosen


def test_processes_on_gpus_exchange_by_nccl_each_with_its_own(four_gpus, monkeypatch):
    found = {}
    signature = inspect.signature(distributed.init_process_group)

    def init_process_group(*arguments, **options):
        found.update(signature.bind(*arguments, **options).arguments)

    monkeypatch.setattr(distributed, "init_process_group", init_process_group)
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    with connected(World(rank=6, size=8, local_rank=2, local_size=4), choose_device("auto", 2)):
        assert (found["backend"], found["device_id"]) == ("nccl", torch.device("cuda", 2))
    assert (found["rank"], found["world_size"]) == (6, 8)


@pytest.fixture
def full_memory(monkeypatch):
    def forward(self, inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 23.69 GiB")

    monkeypatch.setattr(Network, "forward", forward)


def test_a_batch_that_is_too_large_for_the_memory(tmp_path, monkeypatch, request):
    job = tiny_job(write_jets(tmp_path / "jets.root", 200), accumulate=2)
    monkeypatch.setattr("partt.training.fit.count_multiply_adds", lambda network, inputs: 1)
    request.getfixturevalue("full_memory")
    expected = r"too little memory \(CUDA out of memory\).*8 jets at a time.*accumulate: 4.*bfloat16"
    with pytest.raises(ConfigError, match=expected):
        run_job(job, tmp_path / "run")


def test_a_network_for_which_there_is_no_memory(tmp_path, monkeypatch):
    job, tagger = tiny_job(write_jets(tmp_path / "jets.root", 200)), make_tagger()

    def to(self, device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 23.69 GiB")

    monkeypatch.setattr(nn.Module, "to", to)
    for work in (lambda: run_job(job, tmp_path / "run"), lambda: tagger.move_to("cpu")):
        with pytest.raises(ConfigError, match="too little memory .*other programs may use it.*--device"):
            work()


def test_predictions_without_memory(request):
    tagger = make_tagger()
    variables = variables_of(tagger)
    assert np.isfinite(tagger.tag(variables).probabilities).any()
    request.getfixturevalue("full_memory")
    with pytest.raises(ConfigError, match="other programs may use it.*--device"):
        tagger.tag(variables)


@pytest.mark.parametrize(("device", "most"), [("cuda", [2]), ("cpu", range(3, 9))])
def test_two_threads_at_a_time_predict_on_a_gpu(monkeypatch, device, most):
    """All of them have tensors there, and there are as many threads as cores."""
    tagger = make_tagger("pfn")
    variables = variables_of(tagger, num_jets=100)
    expected = tagger.tag(variables).probabilities
    monkeypatch.setattr(Network, "device", torch.device(device))
    monkeypatch.setattr(JetInputs, "to", lambda inputs, device: inputs)
    monkeypatch.setattr(tagger_file, "ROWS_PER_BATCH", {device: 100})
    running, seen, lock, forward = 0, [], threading.Lock(), PFN.forward

    def slow_forward(*arguments, **options):
        nonlocal running
        with lock:
            running += 1
            seen.append(running)
        time.sleep(0.05)
        result = forward(*arguments, **options)
        with lock:
            running -= 1
        return result

    monkeypatch.setattr(PFN, "forward", slow_forward)
    with sharing_threads(8) as each:
        found = tagger.tag(variables, each=each).probabilities
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(seen) > 20
    assert max(seen) in most
