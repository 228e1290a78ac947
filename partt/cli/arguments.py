"""Arguments that several verbs share: numbers, devices."""

import argparse
import os
from typing import TYPE_CHECKING

from partt.errors import ConfigError

if TYPE_CHECKING:
    import torch


def count(text: str) -> int:
    """Return a whole number, 0 included."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def fraction(text: str) -> float:
    """Return a number between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, not {text!r}")
    return value


def choose_device(name: str, local_rank: int | None = None) -> "torch.device":
    """Return the device that --device names; auto: a GPU if there is one (of each local process its own)."""
    import torch

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
