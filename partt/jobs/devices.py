"""What a job may compute with: devices of torch, cores of the machine."""

import os

import torch

from partt.errors import ConfigError


def choose_device(name: str, local_rank: int | None = None) -> torch.device:
    """Return the device that --device names; auto: a GPU if there is one (of each local process its own)."""
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


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
