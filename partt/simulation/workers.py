"""Who makes the files: this process, local processes, or the workers of a dask cluster."""

import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from partt.errors import OutputError, ParttError
from partt.simulation.manifest import FileRecord
from partt.simulation.production import FileTask, Production, Progress, make_file

Finished = Iterator[tuple[FileTask, FileRecord]]
CONNECT_TIMEOUT = "10s"
RERUN = "complete files are kept; the same command makes the rest"


def make_here(production: Production, tasks: Sequence[FileTask], progress: Progress) -> Finished:
    """Make the files one after another in this process."""
    for task in tasks:
        yield task, make_file(production, task, progress)


# --- local processes ----------------------------------------------------------------------------------


class StoppedError(Exception):
    """Another file failed; this one is not needed any more."""


class _Worker:
    """What a worker process shares with the process that started it."""

    reports: Any = None
    stop: Any = None


def _start_worker(reports: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    _Worker.reports, _Worker.stop = reports, stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make_in_worker(production: Production, task: FileTask) -> FileRecord:
    def report(name: str, num_done: int) -> None:
        if _Worker.stop.is_set():
            raise StoppedError
        _Worker.reports.put((name, num_done))

    return make_file(production, task, report)


def make_in_processes(
    production: Production, tasks: Sequence[FileTask], num_processes: int, progress: Progress
) -> Finished:
    """Make the files in local processes; the first failure stops the others."""
    context = multiprocessing.get_context("spawn")
    reports, stop = context.Queue(), context.Event()
    pool = ProcessPoolExecutor(
        min(num_processes, len(tasks)), context, initializer=_start_worker, initargs=(reports, stop)
    )
    try:
        pending: dict[Future[FileRecord], FileTask] = {
            pool.submit(_make_in_worker, production, task): task for task in tasks
        }
        while pending:
            done, _ = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
            _forward(reports, progress)
            for future in done:
                yield pending[future], future.result()
                del pending[future]
    except BrokenProcessPool as error:
        raise OutputError(f"a worker process died (killed, or out of memory); {RERUN}") from error
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _forward(reports: Any, progress: Callable[[str, int], None]) -> None:
    while True:
        try:
            progress(*reports.get_nowait())
        except queue.Empty:
            return


# --- a dask cluster -----------------------------------------------------------------------------------

_one_at_a_time = threading.Lock()  # a dask worker may have many threads; Pythia wants one


def _make_on_cluster(production: Production, task: FileTask) -> FileRecord:
    with _one_at_a_time:
        return make_file(production, task)


def make_on_cluster(
    production: Production, tasks: Sequence[FileTask], scheduler: str, progress: Progress
) -> Finished:
    """Make the files on a dask cluster that sees the same file system."""
    try:
        import distributed  # noqa: PLC0415
    except ImportError as error:
        raise OutputError("--scheduler needs dask: pip install 'partt[distributed]'") from error
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what goes wrong is raised here
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OutputError(f"no dask scheduler answers at {scheduler}: {error}") from error
    with client:
        futures = {client.submit(_make_on_cluster, production, task, pure=False): task for task in tasks}
        try:
            for future in distributed.as_completed(futures, loop=client.loop):
                task = futures[future]
                record = future.result()
                path = production.out / task.name
                if not path.is_file() or path.stat().st_size != record.bytes:
                    raise OutputError(
                        f"a dask worker wrote {path}, but it is not seen here: --out must be on a file "
                        "system that all machines share"
                    )
                progress(task.name, task.num_jets)
                yield task, record
        except ParttError:
            raise
        except (distributed.KilledWorker, distributed.CancelledError, OSError) as error:
            raise OutputError(f"the dask cluster lost a task: {error}; {RERUN}") from error
        finally:
            client.cancel(list(futures))
