"""Training with several processes, of torchrun or `--processes`: who they are, and how they communicate."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

from partt.errors import ConfigError, OutputError
from partt.jobs.local_ranks import MEETING_FILE

START = "start several processes with torchrun or --processes; for a single one, unset WORLD_SIZE"
LOST = re.compile("gloo|nccl|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)
TIMEOUT = timedelta(minutes=30)  # one process may read a slow file while the others wait


class LostProcessError(OutputError):
    """Another process of the run has ended; why, only that one knows."""


@dataclass(frozen=True)
class World:
    """The processes of a run, seen from one of them; by default it is the only one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have called this."""
        if self.size > 1:
            distributed.barrier()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether any process has set it."""
        if self.size == 1:
            return flags
        agreed = torch.tensor(flags, dtype=torch.int32, device=_exchange_device())
        distributed.all_reduce(agreed, op=distributed.ReduceOp.MAX)
        return tuple(bool(flag) for flag in agreed.tolist())

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, on the CPU in float64."""
        if self.size == 1:
            return values.cpu().double()
        total = values.to(_exchange_device(), torch.float64)
        distributed.all_reduce(total)
        return total.cpu()

    def gather(self, item: Any) -> list[Any]:
        """Return the items of all processes, in the order of their ranks."""
        if self.size == 1:
            return [item]
        items = [None] * self.size
        distributed.all_gather_object(items, item)
        return items

    def broadcast_buffers(self, module: nn.Module) -> None:
        """Copy the buffers (running statistics) of the first process to all others."""
        if self.size > 1:
            for buffer in module.buffers():
                distributed.broadcast(buffer, src=0)


def world_from_environment() -> World:
    """Return the world from torchrun's environment variables; without them, a single process."""
    size = _number("WORLD_SIZE", "1")
    if size <= 1:
        return World()
    rank = _number("RANK")
    if rank >= size:
        raise ConfigError(f"the environment variable RANK is {rank}, but WORLD_SIZE is {size}; {START}")
    return World(rank, size, _number("LOCAL_RANK", "0"), _number("LOCAL_WORLD_SIZE", "1"))


def _number(variable: str, default: str = "") -> int:
    text = os.environ.get(variable) or default
    if not text.isdecimal():
        raise ConfigError(f"the environment variable {variable} is {text!r}, not a number; {START}")
    return int(text)


@contextmanager
def connected(world: World, device: torch.device) -> Iterator[None]:
    """Process group as a context manager: NCCL between GPUs, gloo otherwise; inside another, the same."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # otherwise some work would also use memory of the first GPU
    if world.size == 1 or distributed.is_initialized():
        yield
        return
    try:
        _connect(world, device)
        yield  # after an error, do not wait for the other processes: whoever started them ends them
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and not LOST.search(str(error)):
            raise
        reason = str(error).strip().splitlines()[0][:200]
        raise LostProcessError(
            f"process {world.rank} lost another process of this run ({reason}); its error, if any, says why; "
            "--resume continues from the last checkpoint"
        ) from error
    distributed.destroy_process_group()


def _connect(world: World, device: torch.device) -> None:
    meeting = os.environ.get(MEETING_FILE)  # torchrun's processes meet at MASTER_ADDR and MASTER_PORT
    on_gpu = device.type == "cuda"
    try:
        distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=None if meeting is None else f"file://{meeting}",
            timeout=TIMEOUT,
            world_size=world.size,
            rank=world.rank,
            device_id=device if on_gpu else None,  # otherwise barriers guess it, with a warning
        )
    except ValueError as error:
        raise ConfigError(f"{world.size} processes cannot be connected: {error}; {START}") from error


def _exchange_device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
