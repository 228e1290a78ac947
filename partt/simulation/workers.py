"""Making the files of a production: in this process, in local processes, or on a dask cluster."""

import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any, TypeAlias

from partt.errors import OutputError
from partt.jobs.dask_cluster import dask_client, import_distributed
from partt.jobs.stop_signals import StoppedError, leave_signals_to_parent, signals_blocked
from partt.simulation.manifest import FileEntry
from partt.simulation.production import FileProgress, FileTask, Production, make_file

ShouldStop: TypeAlias = Callable[[], bool]
POLL = 0.2  # seconds between checks for complete files or a request to stop
GRACE = 30.0  # seconds in which a worker ends after it was asked to

Finished: TypeAlias = Iterator[tuple[FileTask, FileEntry]]


def make_files(
    production: Production,
    tasks: Sequence[FileTask],
    num_processes: int,
    scheduler: str | None,
    *,
    progress: FileProgress,
    should_stop: ShouldStop,
) -> Finished:
    """Make files and yield each when it is complete, in any order.

    Asked to stop, it raises a StoppedError; in this process, `progress` has to raise it.
    """
    if not tasks:
        return iter(())
    if scheduler is not None:
        return _make_on_cluster(production, tasks, scheduler, progress, should_stop)
    if num_processes > 1:
        return _make_in_processes(production, tasks, num_processes, progress, should_stop)
    return ((task, make_file(production, task, progress)) for task in tasks)


# --- local processes ----------------------------------------------------------------------------------


class _CancelledError(Exception):
    """Another file failed; this one is no longer needed."""


class _Worker:
    """State of a worker process, set when it starts: a queue for its progress, and an event to stop it."""

    reports: Any = None
    stop: Any = None


def _start_worker(reports: Any, stop: Any) -> None:
    leave_signals_to_parent()
    _Worker.reports, _Worker.stop = reports, stop


def _make_in_worker(production: Production, task: FileTask) -> FileEntry:
    def report(name: str, num_done: int) -> None:
        if _Worker.stop.is_set():
            raise _CancelledError
        _Worker.reports.put((name, num_done))

    report(task.name, 0)
    return make_file(production, task, report)


def _make_in_processes(
    production: Production,
    tasks: Sequence[FileTask],
    num_processes: int,
    progress: FileProgress,
    should_stop: ShouldStop,
) -> Finished:
    """Make the files in local processes; the first failure stops all of them."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with signals_blocked():  # Python's tracker of semaphores starts here, and unblocks SIGTERM
        reports, stop = context.Queue(), context.Event()
    with signals_blocked():  # until a worker leaves them to this process
        pool = ProcessPoolExecutor(
            min(num_processes, len(tasks)), context, initializer=_start_worker, initargs=(reports, stop)
        )
        pending: dict[Future[FileEntry], FileTask] = {
            pool.submit(_make_in_worker, production, task): task for task in tasks
        }
    workers = set(multiprocessing.active_children()) - others
    try:
        while pending:
            if should_stop():
                raise StoppedError
            done, _ = wait(pending, timeout=POLL, return_when=FIRST_COMPLETED)
            _forward(reports, progress)
            for future in done:
                yield pending[future], future.result()
                del pending[future]
    except BrokenProcessPool as error:
        if should_stop():
            raise StoppedError from error
        raise OutputError("a worker process died (killed, or out of memory)") from error
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            # A signal that a worker received while it was starting may have hidden that of the pool.
            while not connection.wait([worker.sentinel], GRACE):
                worker.terminate()
        pool.shutdown(wait=True)


def _forward(reports: Any, progress: FileProgress) -> None:
    while True:
        try:
            progress(*reports.get_nowait())
        except queue.Empty:
            return


# --- a dask cluster -----------------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # of a dask worker, which may have several threads; Pythia needs one


def _make_on_worker(production: Production, task: FileTask) -> FileEntry:
    with _one_at_a_time:
        return make_file(production, task)


def _make_on_cluster(
    production: Production,
    tasks: Sequence[FileTask],
    scheduler: str,
    progress: FileProgress,
    should_stop: ShouldStop,
) -> Finished:
    """Make the files on a dask cluster that shares a file system with this machine."""
    distributed = import_distributed()
    with dask_client(scheduler) as client:
        futures = {client.submit(_make_on_worker, production, task, pure=False): task for task in tasks}
        try:
            for future in _finished(distributed.as_completed(futures, loop=client.loop), should_stop):
                task, entry = futures[future], future.result()
                path = production.out / task.name
                if not path.is_file() or path.stat().st_size != entry.bytes:
                    raise OutputError(
                        f"a dask worker wrote {path}, but this machine does not see it: --out must be on a "
                        "file system that all machines share"
                    )
                progress(task.name, task.num_jets)
                yield task, entry
        finally:
            client.cancel(list(futures))


def _finished(completed: Any, should_stop: ShouldStop) -> Iterator[Any]:
    """Yield the futures of dask's `as_completed` as they finish."""
    while not completed.is_empty():
        if should_stop():
            raise StoppedError
        batch = completed.next_batch(block=False)
        yield from batch
        if not batch:
            time.sleep(POLL)
