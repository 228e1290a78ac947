"""Several processes of one job on this machine, started, watched and ended as one command.

They know each other through torchrun's environment variables. The first one has the screen; what another one
writes is kept, and handed over if it is the one that failed. A signal is passed on to all, whether it went to
this process or to all of them, and `stop_on_signal` counts it once.

This module loads no torch, so that processes are forked before there are threads.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import IO

from partt.errors import OutputError
from partt.jobs.stop_signals import SIGNALS, STOPPED, signals_blocked, stop_on_signal

MEETING_FILE = "PARTT_MEETING_FILE"  # environment variable: where the processes find each other
LOST = 76  # exit code of a process that lost another one: it is not the one that failed
GRACE = 10.0  # seconds in which the others may end after one has failed
CHECK_SIGNALS = 0.1  # seconds
_PR_SET_PDEATHSIG = 1  # sys/prctl.h


@dataclass(frozen=True)
class RanksEnded:
    """How the processes of a job ended."""

    exit_code: int
    message: str = ""  # what the user has not seen yet


def run_ranks(num_ranks: int, num_threads: int, work: Callable[[], int]) -> RanksEnded:
    """Run `work`, which returns an exit code, in each of several processes, and wait until all have ended."""
    with tempfile.TemporaryDirectory(prefix="partt_") as folder, _caught_signals() as caught:
        kept = [tempfile.TemporaryFile(dir=folder) for _ in range(num_ranks)]  # noqa: SIM115 - closed below
        fork = multiprocessing.get_context("fork")
        environment = {
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(num_threads)),
            "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
            MEETING_FILE: str(Path(folder) / "meeting"),
        }
        ranks = [
            fork.Process(target=_run_rank, args=(rank, environment, kept[rank], work, os.getpid()))
            for rank in range(num_ranks)
        ]
        with signals_blocked():  # until a process has its own handlers
            for process in ranks:
                process.start()
        order = _wait_for_all(ranks, caught)
        ended = _outcome(ranks, order, kept)
        for file in kept:
            file.close()
    return ended


@contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Collect signals in a list; those that are ignored stay ignored."""
    caught: list[int] = []
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in heeded}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_rank(
    rank: int, environment: dict[str, str], kept: IO[bytes], work: Callable[[], int], parent: int
) -> None:
    """Work as one of the processes, and end with the exit code."""
    os.environ |= {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    if rank:
        for descriptor in (1, 2):
            os.dup2(kept.fileno(), descriptor)
        sys.stdout = sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    with stop_on_signal():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        # Whatever ends the parent is a request to save and stop.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        code = work()
    sys.exit(code)


def _wait_for_all(ranks: Sequence[ForkProcess], caught: list[int]) -> list[int]:
    """Pass on signals until all have ended; return the processes that ended by themselves, in this order.

    When the first process has ended, or another one has failed, the rest must end soon, or is killed.
    """
    order: list[int] = []
    deadline: float | None = None
    while running := [rank for rank in range(len(ranks)) if rank not in order]:
        connection.wait([ranks[rank].sentinel for rank in running], CHECK_SIGNALS)
        order += (gone := [rank for rank in running if ranks[rank].exitcode is not None])
        if deadline is None and any(rank == 0 or ranks[rank].exitcode not in {0, STOPPED} for rank in gone):
            deadline = time.monotonic() + GRACE
        left = [ranks[rank] for rank in running if rank not in gone]
        while caught:
            number = caught.pop(0)
            for process in left:
                if process.pid is not None:
                    os.kill(process.pid, number)
        if deadline is not None and time.monotonic() > deadline:
            for process in left:
                process.kill()
                process.join()
            break
    return order


def _outcome(ranks: Sequence[ForkProcess], order: Sequence[int], kept: Sequence[IO[bytes]]) -> RanksEnded:
    """Return the exit code of the first process, or that of the one which made it fail, and its words."""
    codes = {rank: ranks[rank].exitcode or 0 for rank in order}
    if codes.get(0, LOST) != LOST and codes[0] >= 0:
        return RanksEnded(codes[0])  # the first process has told the user
    failed = next((rank for rank in order if codes[rank] not in {0, STOPPED, LOST}), None)
    if failed is None:
        return RanksEnded(
            OutputError.exit_code,
            "partt: error: the processes of this run have lost each other; --resume continues from the last "
            "checkpoint",
        )
    if codes[failed] > 0:
        kept[failed].seek(0)
        return RanksEnded(codes[failed], kept[failed].read().decode(errors="replace").rstrip())
    name = signal.Signals(-codes[failed]).name
    return RanksEnded(
        OutputError.exit_code,
        f"partt: error: process {failed + 1} of {len(ranks)} died of {name} (if memory ran out, use fewer "
        "processes or workers); --resume continues from the last checkpoint",
    )
