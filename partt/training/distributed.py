"""Several processes that train one model: what torchrun started, and what they tell each other."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn

TIMEOUT = timedelta(minutes=30)  # one process may have to read a file for long while the others wait


@dataclass(frozen=True)
class World:
    """The processes of a run; one alone is a world of its own."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have come here."""
        if self.size > 1:
            distributed.barrier()

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return, for each flag, whether any process has set it."""
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

    def broadcast_buffers(self, model: nn.Module) -> None:
        """Give all processes the buffers (BatchNorm's memory) of the first one."""
        if self.size > 1:
            for buffer in model.buffers():
                distributed.broadcast(buffer, src=0)


def world_from_environment() -> World:
    """Return the world that torchrun describes in environment variables, or one of a single process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    return World(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@contextmanager
def connected(world: World, device: torch.device) -> Iterator[None]:
    """Connect the processes, and part again: NCCL between GPUs, gloo otherwise."""
    if world.size == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    yield  # after an error the others are not waited for: torchrun ends them
    distributed.destroy_process_group()


def _exchange_device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
