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

from partt.errors import OutputError
from partt.jobs.local_ranks import MEETING_FILE

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
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    return World(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@contextmanager
def connected(world: World, device: torch.device) -> Iterator[None]:
    """Process group as a context manager: NCCL between GPUs, gloo otherwise; inside another, the same."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # otherwise some work would also use memory of the first GPU
    if world.size == 1 or distributed.is_initialized():
        yield
        return
    meeting = os.environ.get(MEETING_FILE)  # torchrun's processes meet at MASTER_ADDR and MASTER_PORT
    try:
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=None if meeting is None else f"file://{meeting}",
            timeout=TIMEOUT,
            world_size=world.size,
            rank=world.rank,
            device_id=device
            if device.type == "cuda"
            else None,  # otherwise barriers guess it, with a warning
        )
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


def _exchange_device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
