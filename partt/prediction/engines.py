"""Who scores the chunks: threads of this process, or the workers of a dask cluster. Results come in order."""

import logging
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from partt.errors import ConfigError, OutputError, ParttError
from partt.model.cpu.allocator import keep_freed_memory
from partt.prediction.chunks import ChunkTask, attempt_chunk
from partt.prediction.options import Options
from partt.scores.scores import Scores
from partt.tagger.inference import BatchScores, Positions, sharing_threads
from partt.tagger.loading import load_tagger
from partt.tagger.tagger import Tagger

Results: TypeAlias = Generator[tuple[ChunkTask, Scores | ParttError], None, None]
ShouldStop: TypeAlias = Callable[[], bool]
Count: TypeAlias = Callable[[int], None]  # told of entries that are done

POLL = 0.01  # seconds between looks at whether a chunk is done, or to stop
CONNECT_TIMEOUT = "10s"
RETRIES = 3  # of a chunk whose worker fails


class StoppedError(Exception):
    """Somebody asked to stop."""


def _in_order(
    submit: Callable[[ChunkTask], Any],
    tasks: Iterable[ChunkTask],
    ahead: Callable[[], int],
    should_stop: ShouldStop,
) -> Results:
    """Submit tasks, some ahead of the one that is waited for, and yield their results in order."""
    remaining = iter(tasks)
    window: deque[tuple[ChunkTask, Any]] = deque()
    try:
        while True:
            while len(window) < ahead() and (task := next(remaining, None)) is not None:
                window.append((task, submit(task)))
            if not window:
                return
            task, future = window.popleft()
            yield task, _wait(future, should_stop)
    finally:
        for _, future in window:
            future.cancel()


def _wait(future: Any, should_stop: ShouldStop) -> Scores | ParttError:
    # Not result(timeout): dask's may fail when the result comes just then.
    while not should_stop():
        if future.done():
            result: Scores | ParttError = future.result()
            return result
        time.sleep(POLL)
    raise StoppedError


# --- this process -------------------------------------------------------------------------------------


def score_here(
    tagger: Tagger,
    options: Options,
    tasks: Iterable[ChunkTask],
    *,
    num_threads: int,
    count: Count,
    should_stop: ShouldStop,
) -> Results:
    """Share the batches of a chunk between threads, while the next chunks are read in others."""
    with ThreadPoolExecutor(num_threads + 1) as readers, sharing_threads(num_threads) as each:

        def each_counted(
            run: Callable[[Positions], BatchScores], batches: Sequence[Positions]
        ) -> Iterable[BatchScores]:
            def run_and_count(batch: Positions) -> BatchScores:
                scores = run(batch)
                count(len(batch))
                return scores

            return each(run_and_count, batches)

        def submit(task: ChunkTask) -> Any:
            return readers.submit(attempt_chunk, tagger, options, task, each_counted)

        for task, result in _in_order(submit, tasks, lambda: num_threads + 1, should_stop):
            scored = 0 if isinstance(result, ParttError) else np.count_nonzero(result.selected & ~result.bad)
            count(task.stop - task.start - int(scored))
            yield task, result


# --- a dask cluster -----------------------------------------------------------------------------------


def score_on_cluster(
    tagger: Tagger,
    options: Options,
    tasks: Iterable[ChunkTask],
    *,
    scheduler: str | None = None,
    num_workers: int = 1,
    count: Count,
    should_stop: ShouldStop,
) -> Results:
    """Score chunks on the workers of a scheduler, or on a cluster of processes on this machine.

    Workers must see the input files; the tagger is sent to them, and scores come back.
    """
    distributed = _import_distributed()
    with _client(distributed, scheduler, num_workers) as client:
        # As a task, not as data: it is made again where a worker that had it dies.
        contents = client.submit(bytes, tagger.to_bytes(), pure=False)
        name = f"tagger{tagger.file_suffix}"

        def submit(task: ChunkTask) -> Any:
            return client.submit(
                _score_on_worker, contents, name, tagger.sha256, options, task, retries=RETRIES, pure=False
            )

        def ahead() -> int:
            return 2 * max(1, int(sum(client.nthreads().values())))

        try:
            for task, result in _in_order(submit, tasks, ahead, should_stop):
                count(task.stop - task.start)
                yield task, result
        except (distributed.KilledWorker, distributed.CancelledError, OSError) as error:
            raise OutputError(
                f"the dask cluster lost a chunk: {error}; complete outputs are kept, the same command makes "
                "the rest"
            ) from error


_taggers: dict[str, Tagger] = {}  # of a worker, by their hash
_loading = threading.Lock()


def _score_on_worker(
    contents: bytes, name: str, sha256: str, options: Options, task: ChunkTask
) -> Scores | ParttError:
    with _loading:
        if sha256 not in _taggers:
            torch.set_num_threads(1)  # as in sharing_threads
            keep_freed_memory()
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / name
                path.write_bytes(contents)
                _taggers[sha256] = load_tagger(path)
    return attempt_chunk(_taggers[sha256], options, task)


def _import_distributed() -> Any:
    try:
        import distributed  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("dask is missing: pip install 'partt[distributed]'") from error
    return distributed


@contextmanager
def _client(distributed: Any, scheduler: str | None, num_workers: int) -> Iterator[Any]:
    """Connect to a scheduler, or start a cluster of processes on this machine."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what goes wrong is raised
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")  # the tagger
        if scheduler is None:
            cluster = distributed.LocalCluster(
                n_workers=num_workers,
                threads_per_worker=1,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            try:
                with distributed.Client(cluster, set_as_default=False) as client:
                    yield client
            finally:
                with suppress(TimeoutError):  # a worker that does not end in time; its results are here
                    cluster.close()
            return
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise OutputError(f"no dask scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client
