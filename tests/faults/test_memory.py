"""Memory of long trainings; benchmarks/bench_memory.py measures it."""

import os

import pytest
import torch

from partt.training.distributed import World
from partt.training.learner import make_learner
from training_jobs import tiny_job

VARIABLE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


@pytest.mark.parametrize(("before", "after"), [(None, "64"), ("7", "7")])
def test_training_keeps_few_compiled_kernels(jet_file, monkeypatch, before, after):
    monkeypatch.setenv(VARIABLE, before or "")
    if before is None:
        monkeypatch.delenv(VARIABLE)
    make_learner(tiny_job(jet_file), World(), torch.device("cpu"))
    assert os.environ[VARIABLE] == after
