"""Clients of dask clusters: the workers of a scheduler, or processes on this machine."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from partt.errors import ConfigError, OutputError

CONNECT_TIMEOUT = "10s"


class LostTaskError(OutputError):
    """The cluster gave up on a task: its workers died, or the scheduler is gone."""


def import_distributed() -> Any:
    """Import dask's `distributed`, which partt does not always need."""
    try:
        import distributed  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("dask is missing: pip install 'partt[distributed]'") from error
    return distributed


@contextmanager
def dask_client(scheduler: str | None, num_workers: int = 1) -> Iterator[Any]:
    """Connect to a scheduler, or start a cluster of `num_workers` processes on this machine.

    A task that the cluster loses inside the block is raised as a LostTaskError.
    """
    distributed = import_distributed()
    _silence("distributed")  # failures are raised as errors
    with warnings.catch_warnings(), _connected(distributed, scheduler, num_workers) as client:
        warnings.filterwarnings("ignore", message="Sending large graph")  # the tagger
        closed = distributed.client.ClosedClientError  # which tasks cannot be cancelled with any more
        try:
            yield client
        except (distributed.KilledWorker, distributed.CancelledError, closed, OSError) as error:
            raise LostTaskError(f"the dask cluster lost a task: {error}") from error


def _silence(package: str) -> None:
    """Let no module of a package log errors; some have levels of their own."""
    for name in [package, *logging.root.manager.loggerDict]:
        if name.partition(".")[0] == package:
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _connected(distributed: Any, scheduler: str | None, num_workers: int) -> Iterator[Any]:
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except Exception as error:  # each protocol has its own: tls:// without certificates is a TypeError
            raise OutputError(f"no dask scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client
        return
    cluster = distributed.LocalCluster(
        n_workers=num_workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
    )
    try:
        with distributed.Client(cluster, set_as_default=False) as client:
            yield client
    finally:
        with suppress(TimeoutError):  # a worker does not end in time; its results have arrived
            cluster.close()
