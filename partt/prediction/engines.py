"""Engines that score chunks in order: threads of this process, or the workers of a dask cluster."""

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from partt.data.jet_batch import Positions
from partt.errors import OutputError, ParttError
from partt.jobs.dask_cluster import LostTaskError, dask_client
from partt.jobs.stop_signals import StoppedError
from partt.model.cpu.allocator import keep_freed_memory
from partt.model.network_file import NetworkFile
from partt.prediction.chunks import ChunkTask, attempt_chunk
from partt.prediction.options import Options
from partt.scores.scores import Scores
from partt.tagger.inference import BatchScores, sharing_threads
from partt.tagger.loading import load_tagger
from partt.tagger.tagger import Tagger

Results: TypeAlias = Generator[tuple[ChunkTask, Scores | ParttError], None, None]
ShouldStop: TypeAlias = Callable[[], bool]
Count: TypeAlias = Callable[[float], None]  # called with the number of jets just done

POLL = 0.01  # seconds between checks for a result or a request to stop
RETRIES = 3  # of a chunk whose worker fails


def _in_order(
    submit: Callable[[ChunkTask], Any],
    tasks: Iterable[ChunkTask],
    ahead: Callable[[], int],
    should_stop: ShouldStop,
) -> Results:
    """Yield the results of tasks in order, with `ahead()` tasks submitted at a time."""
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
    # Not result(timeout): in dask it may fail if the result arrives at that moment.
    while not should_stop():
        if future.done():
            result: Scores | ParttError = future.result()
            return result
        time.sleep(POLL)
    raise StoppedError


def _num_jets(task: ChunkTask, result: Scores | ParttError) -> int:
    return task.stop - task.start if isinstance(result, ParttError) else len(result) + result.num_removed


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
    """Score the batches of a chunk on a pool of threads, while other threads read the next chunks."""
    with ThreadPoolExecutor(num_threads + 1) as readers, sharing_threads(num_threads) as each:

        def each_counted(
            run: Callable[[Positions], BatchScores], batches: Sequence[Positions]
        ) -> Iterable[BatchScores]:
            def run_and_count(batch: Positions) -> BatchScores:
                scores = run(batch)
                count(len(batch) / tagger.num_networks)
                return scores

            return each(run_and_count, batches)

        def submit(task: ChunkTask) -> Any:
            return readers.submit(attempt_chunk, tagger, options, task, each_counted)

        for task, result in _in_order(submit, tasks, lambda: num_threads + 1, should_stop):
            # batches have counted the jets that were scored
            scored = 0 if isinstance(result, ParttError) else np.count_nonzero(result.selected & ~result.bad)
            count(_num_jets(task, result) - int(scored))
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
    try:
        with dask_client(scheduler, num_workers) as client:
            # As a task, not as data: it is computed again if the worker that held the result dies.
            name = f"tagger{tagger.file_suffix}"
            parts = (tagger.to_bytes(), name, tagger.sha256, tagger.network_file)
            sent = client.submit(_SentTagger, *parts, pure=False)

            def submit(task: ChunkTask) -> Any:
                return client.submit(_score_on_worker, sent, options, task, retries=RETRIES, pure=False)

            def ahead() -> int:
                return 2 * max(1, int(sum(client.nthreads().values())))

            for task, result in _in_order(submit, tasks, ahead, should_stop):
                count(_num_jets(task, result))
                yield task, result
    except LostTaskError as error:
        raise OutputError(f"{error}; complete outputs are kept, the same command makes the rest") from error


@dataclass(frozen=True)
class _SentTagger:
    """A tagger on its way to a worker."""

    contents: bytes  # of its file
    name: str
    sha256: str
    network_file: NetworkFile | None


class _WorkerTaggers:
    """The taggers that a dask worker has loaded, by hash.

    Chunks reach a worker as separate tasks, often several at a time in threads: each tagger is loaded once
    for all of them, and kept until the worker process ends.
    """

    def __init__(self) -> None:
        self._loaded: dict[str, Tagger] = {}
        self._loading = threading.Lock()

    def get(self, sent: _SentTagger) -> Tagger:
        """Return the tagger with this hash, loaded from the contents of its file if it is new."""
        with self._loading:
            if sent.sha256 not in self._loaded:
                torch.set_num_threads(1)  # as in sharing_threads
                keep_freed_memory()
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / sent.name
                    path.write_bytes(sent.contents)
                    self._loaded[sent.sha256] = load_tagger(path, network_file=sent.network_file)
            return self._loaded[sent.sha256]


_worker_taggers = _WorkerTaggers()  # one for each worker process; only _score_on_worker uses it


def _score_on_worker(sent: _SentTagger, options: Options, task: ChunkTask) -> Scores | ParttError:
    return attempt_chunk(_worker_taggers.get(sent), options, task)
