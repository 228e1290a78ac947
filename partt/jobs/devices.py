"""What a job may compute with: devices of torch, cores of the machine."""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from partt.errors import ConfigError

OTHER_PROGRAMS = "other programs may use it: wait for them, or choose another device with --device"
_TURNS = threading.Semaphore(2)  # a GPU computes one batch while the host prepares the next


def choose_device(name: str, local_rank: int | None = None) -> torch.device:
    """Return the device that --device names; auto: a GPU if there is one (of each local process its own)."""
    if name.startswith("cuda:") and local_rank is not None:
        raise ConfigError(f"--device {name}: each of several processes uses its own GPU; give cuda or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and local_rank is not None:
        name = f"cuda:{local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name}: no such device; give cpu, cuda, cuda:N or auto") from error
    if device.type not in {"cpu", "cuda"}:
        raise ConfigError(f"--device {name}: give cpu, cuda, cuda:N or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: torch finds {torch.cuda.device_count()} GPUs")
    return device


def turn_on(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context for threads: two at a time use a GPU, whose memory they share, all of them a CPU."""
    return nullcontext() if device.type == "cpu" else _TURNS


@contextmanager
def memory_errors_explained(advice: str) -> Iterator[None]:
    """Turn torch's error about a full GPU into one that says what to do."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).split(". ")[0]
        raise ConfigError(f"the GPU has too little memory ({reason}); {advice}") from error


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
